//go:build faults

package lockproxy_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockproxy/internal/testredis"
)

// machine is another machine as far as the network goes: a namespace with one link to this one.
type machine struct {
	t    *testing.T
	name string // of the namespace
	near string // this machine's address on the link
	far  string // its own
}

var machines atomic.Int64

// newMachine makes one, which wants root and iproute2.
func newMachine(t *testing.T) *machine {
	t.Helper()
	n := int(machines.Add(1))
	m := &machine{t: t, name: fmt.Sprintf("lp%d-%d", os.Getpid(), n)}
	net := fmt.Sprintf("10.213.%d.", (os.Getpid()+n)%250)
	m.near, m.far = net+"1", net+"2"
	link := fmt.Sprintf("lp%dv%d", os.Getpid(), n)
	m.ip("netns", "add", m.name)
	t.Cleanup(func() { m.ip("netns", "del", m.name) }) // and with it the link
	m.ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", m.name)
	m.ip("addr", "add", m.near+"/30", "dev", link)
	m.ip("link", "set", link, "up")
	m.ip("-n", m.name, "addr", "add", m.far+"/30", "dev", "eth0")
	m.ip("-n", m.name, "link", "set", "eth0", "up")
	return m
}

func (m *machine) ip(args ...string) {
	m.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		m.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// vanish takes the machine off the network: it sends nothing more, not even an end.
func (m *machine) vanish() time.Time {
	m.ip("-n", m.name, "link", "set", "eth0", "down")
	return time.Now()
}

// on runs something whose sockets are the machine's.
func (m *machine) on(do func() error) {
	m.t.Helper()
	failed := make(chan error, 1)
	go func() { // ends with do, and its thread with it
		runtime.LockOSThread()
		file, err := os.Open("/var/run/netns/" + m.name)
		if err == nil {
			defer file.Close()
			if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err == nil {
				err = do()
			}
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		m.t.Fatal(err)
	}
}

// dial connects the machine with a server here.
func (m *machine) dial(addr string) (c *rawConn) {
	m.t.Helper()
	m.on(func() error {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			m.t.Cleanup(func() { nc.Close() })
			c = dialed(m.t, nc)
		}
		return err
	})
	return c
}

// A machine that vanishes leaves nothing behind for longer than docs/guarantees.md says: its session locks for their timeout, at least 10 s and
// at most 30 s, and its place in line for 30 s, and 3 s each to notice.
func TestFaultClientMachineVanishes(t *testing.T) {
	const lease, waits = 10*time.Second + 3*time.Second, 30*time.Second + 3*time.Second
	server := testredis.Start(t)
	setUp := func(t *testing.T) (*machine, *testProxy, *rawConn) {
		t.Parallel()
		m := newMachine(t)
		p := startProxyAt(t, m.near+":0", server.URL(), nil)
		return m, p, dial(t, p.addr)
	}
	// free waits until a lock is free, and says how long that took.
	free := func(t *testing.T, p *testProxy, key string, since time.Time, bound time.Duration) {
		t.Helper()
		c := dial(t, p.addr)
		c.send("LOCK " + key + " 1 WAIT 0")
		got, err := c.tryReply(bound + 2*time.Second - time.Since(since))
		took := time.Since(since)
		t.Logf("another has it after %v", took.Round(10*time.Millisecond))
		if err != nil || got[0] != ':' || took > bound {
			t.Errorf("after %v: %q, %v; want it within %v", took, got, err, bound)
		}
	}

	t.Run("holder", func(t *testing.T) {
		m, p, _ := setUp(t)
		m.dial(p.addr).lock("idle 5 SESSION")
		free(t, p, "idle", m.vanish(), lease)
	})
	t.Run("holder with an answer on its way", func(t *testing.T) {
		m, p, other := setUp(t)
		c := m.dial(p.addr)
		c.lock("busy 5 SESSION")
		c.send("BLPOP list 0")
		time.Sleep(2 * time.Second) // the proxy has begun to look
		since := m.vanish()
		other.expect("RPUSH list x", ":1\r\n")
		free(t, p, "busy", since, lease)
	})
	t.Run("token on its way", func(t *testing.T) {
		m, p, other := setUp(t)
		other.lock("wait 30")
		m.dial(p.addr).send("LOCK wait 5 WAIT 0 SESSION")
		attackWaits(t, p, "wait", 1)
		m.vanish()
		time.Sleep(3 * time.Second)
		other.expect("UNLOCK wait", ":1\r\n")
		free(t, p, "wait", time.Now(), lease)
	})
	t.Run("waiter", func(t *testing.T) {
		m, p, other := setUp(t)
		other.lock("line 60")
		m.dial(p.addr).send("LOCK line 5 WAIT 0")
		attackWaits(t, p, "line", 1)
		since := m.vanish()
		eventually(t, waits, "it leaves the line", func() bool { return strings.Contains(other.do("LOCKINFO line"), "waiters\r\n:0\r\n") })
		t.Logf("it has left the line after %v", time.Since(since).Round(10*time.Millisecond))
	})
	t.Run("waiter with an answer on its way", func(t *testing.T) {
		m, p, other := setUp(t)
		other.lock("late 60")
		m.dial(p.addr).send("BLPOP nothing 1", "LOCK late 5 WAIT 0")
		time.Sleep(300 * time.Millisecond)
		since := m.vanish() // before the answer to BLPOP
		attackWaits(t, p, "late", 1)
		eventually(t, waits, "it leaves the line", func() bool { return strings.Contains(other.do("LOCKINFO late"), "waiters\r\n:0\r\n") })
		t.Logf("it has left the line after %v", time.Since(since).Round(10*time.Millisecond))
	})
	t.Run("lockproxy run", func(t *testing.T) {
		m, p, other := setUp(t)
		run := func(key string, more ...string) *exec.Cmd {
			args := append([]string{"netns", "exec", m.name, builtPrograms(t).Proxy, "run", "--url", "redis://" + p.addr, "--key", key}, more...)
			cmd := exec.Command("ip", args...)
			cmd.WaitDelay = time.Second
			return cmd
		}
		holder := run("job", "--timeout", "12", "--kill-after", "1", "--", "sleep", "100")
		waiter := run("other", "--wait", "0", "--", "true")
		other.lock("other 60")
		for _, cmd := range []*exec.Cmd{holder, waiter} {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		}
		eventually(t, 5*time.Second, "both have asked", func() bool {
			return strings.Contains(other.do("LOCKINFO other"), "waiters\r\n:1\r\n") && !strings.HasPrefix(other.do("LOCKINFO job"), "$-1")
		})
		since := m.vanish()
		free(t, p, "job", since, 12*time.Second+3*time.Second)
		holder.Wait()
		if code := holder.ProcessState.ExitCode(); code != 124 || time.Since(since) > 15*time.Second {
			t.Errorf("the holder ends after %v with status %d, want 124", time.Since(since), code)
		}
		waiter.Wait()
		t.Logf("the one that waits ends after %v", time.Since(since).Round(10*time.Millisecond))
		if code := waiter.ProcessState.ExitCode(); code != 69 || time.Since(since) > waits {
			t.Errorf("the one that waits ends after %v with status %d, want 69", time.Since(since), code)
		}
	})
	t.Run("a client that reads nothing is not lost", func(t *testing.T) {
		m, p, other := setUp(t)
		other.expect("SET big "+strings.Repeat("x", 1<<20), "+OK\r\n")
		c := m.dial(p.addr)
		c.lock("slow 5 SESSION")
		const many = 30
		for range many {
			c.send("GET big")
		}
		time.Sleep(25 * time.Second) // its window is closed, and the bound of 10 s over
		for i := range many {
			if got := c.reply(); len(got) < 1<<20 {
				t.Fatalf("answer %d has %d bytes", i, len(got))
			}
		}
		c.expect("UNLOCK slow", ":1\r\n")
	})
}
