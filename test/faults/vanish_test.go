//go:build faults && linux

package faults_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// machine is another machine as far as the network goes.
type machine struct {
	*process.Machine
	t *testing.T
}

// newMachine makes one, which needs root and iproute2.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m, err := process.NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return &machine{m, t}
}

// vanish takes the machine off the network: it sends nothing more, not even an end.
func (m *machine) vanish() time.Time {
	m.t.Helper()
	if err := m.Link(false); err != nil {
		m.t.Fatal(err)
	}
	return time.Now()
}

// dial connects the machine with a server here.
func (m *machine) dial(addr string) *proxytest.Conn {
	m.t.Helper()
	var nc net.Conn
	err := m.Do(func() (err error) {
		nc, err = net.Dial("tcp", addr)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { nc.Close() })
	return proxytest.Dialed(m.t, nc)
}

// serve makes the server at addr one of the machine's, and returns its address there.
func (m *machine) serve(addr string) string {
	m.t.Helper()
	var ln net.Listener
	err := m.Do(func() (err error) {
		ln, err = net.Listen("tcp", m.Far+":0")
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { ln.Close() })
	go func() { // ends when ln closes; the copies end with their connections
		for {
			outer, err := ln.Accept()
			if err != nil {
				return
			}
			inner, err := net.Dial("tcp", addr)
			if err != nil {
				outer.Close()
				continue
			}
			m.t.Cleanup(func() { outer.Close(); inner.Close() })
			go io.Copy(inner, outer)
			go io.Copy(outer, inner)
		}
	}()
	return ln.Addr().String()
}

// What a vanished machine leaves behind, its session locks and its places in queues, goes though
// nothing closes its connections. How long that took is printed; docs/guarantees.md has the times.
func TestFaultClientMachineVanishes(t *testing.T) {
	setUp := func(t *testing.T) (*machine, *proxytest.Proxy, *proxytest.Conn) {
		t.Parallel()
		m := newMachine(t)
		p := proxytest.StartAt(t, m.Host+":0", testredis.Start(t).URL(), nil)
		return m, p, proxytest.Dial(t, p.Addr)
	}
	blocks := func(t *testing.T, other *proxytest.Conn) {
		t.Helper()
		testwait.Until(t, "the client blocks", func() bool {
			return strings.Contains(other.Do("INFO clients"), "blocked_clients:1\r\n")
		})
	}
	leaves := func(t *testing.T, other *proxytest.Conn, key string, since time.Time) {
		t.Helper()
		testwait.Until(t, "the waiter leaves the queue", func() bool {
			return strings.Contains(other.Do("LOCKINFO "+key), "waiters\r\n:0\r\n")
		})
		t.Logf("the waiter has left the queue after %v",
			time.Since(since).Round(10*time.Millisecond))
	}
	// free waits until a lock is free, and says how long that took.
	free := func(t *testing.T, p *proxytest.Proxy, key string, since time.Time) {
		t.Helper()
		c := proxytest.Dial(t, p.Addr)
		c.Send("LOCK " + key + " 600 WAIT 0")
		got, err := c.TryReply()
		t.Logf("another client has it after %v", time.Since(since).Round(10*time.Millisecond))
		if err != nil || got[0] != ':' {
			t.Errorf("%q, %v; want a token", got, err)
		}
	}

	t.Run("holder", func(t *testing.T) {
		m, p, _ := setUp(t)
		c := m.dial(p.Addr)
		c.Lock("idle 600 SESSION")
		awaitSilence(t, c, longestSilence)
		free(t, p, "idle", m.vanish())
	})
	t.Run("holder with an answer on its way", func(t *testing.T) {
		m, p, other := setUp(t)
		c := m.dial(p.Addr)
		c.Lock("busy 600 SESSION")
		c.Send("BLPOP list 0")
		blocks(t, other)
		awaitSilence(t, c, longestSilence)
		since := m.vanish()
		other.Expect("RPUSH list x", ":1\r\n")
		free(t, p, "busy", since)
	})
	t.Run("token on its way", func(t *testing.T) {
		m, p, other := setUp(t)
		other.Lock("wait 600")
		m.dial(p.Addr).Send("LOCK wait 600 WAIT 0 SESSION")
		proxytest.AwaitWaiters(t, p, "wait", 1)
		since := m.vanish()
		other.Expect("UNLOCK wait", ":1\r\n")
		free(t, p, "wait", since)
	})
	t.Run("waiter", func(t *testing.T) {
		m, p, other := setUp(t)
		other.Lock("line 600")
		m.dial(p.Addr).Send("LOCK line 600 WAIT 0")
		proxytest.AwaitWaiters(t, p, "line", 1)
		leaves(t, other, "line", m.vanish())
	})
	t.Run("waiter with an answer on its way", func(t *testing.T) {
		m, p, other := setUp(t)
		other.Lock("late 600")
		m.dial(p.Addr).Send("BLPOP list 0", "LOCK late 600 WAIT 0")
		blocks(t, other)
		since := m.vanish()
		other.Expect("RPUSH list x", ":1\r\n")
		proxytest.AwaitWaiters(t, p, "late", 1)
		leaves(t, other, "late", since)
	})
	t.Run("lockproxy run", func(t *testing.T) {
		m, p, other := setUp(t)
		run := func(key string, more ...string) *exec.Cmd {
			args := append([]string{"run", "--url", "redis://" + p.Addr, "--key", key}, more...)
			return m.Command(builtPrograms(t).Proxy, args...)
		}
		// The holder knows by its timeout only that its lock is lost.
		holder := run("job", "--timeout", "30", "--", "sleep", "600")
		waiter := run("other", "--wait", "0", "--", "true")
		other.Lock("other 600")
		for _, cmd := range []*exec.Cmd{holder, waiter} {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		}
		testwait.Until(t, "both have asked", func() bool {
			return strings.Contains(other.Do("LOCKINFO other"), "waiters\r\n:1\r\n") &&
				!strings.HasPrefix(other.Do("LOCKINFO job"), "$-1")
		})
		since := m.vanish()
		free(t, p, "job", since)
		holder.Wait()
		if code := holder.ProcessState.ExitCode(); code != 124 {
			t.Errorf("the holder ends with status %d, want 124", code)
		}
		waiter.Wait()
		t.Logf("the waiter ends after %v", time.Since(since).Round(10*time.Millisecond))
		if code := waiter.ProcessState.ExitCode(); code != 69 {
			t.Errorf("the waiter ends with status %d, want 69", code)
		}
	})
	t.Run("a client that reads nothing is not lost", func(t *testing.T) {
		m, p, other := setUp(t)
		other.Expect("SET big "+strings.Repeat("x", 1<<20), "+OK\r\n")
		c := m.dial(p.Addr)
		c.Lock("slow 600 SESSION")
		const many = 16
		for range many {
			c.Send("GET big")
		}
		// Its window is closed. Only the kernels' clocks can show that this is no silence.
		time.Sleep(longestSilence + 10*time.Second)
		for i := range many {
			if got := c.Reply(); len(got) < 1<<20 {
				t.Fatalf("answer %d has %d bytes", i, len(got))
			}
		}
		c.Expect("UNLOCK slow", ":1\r\n")
	})
}

// Clients that wait for its replies also notice when the upstream's machine vanishes.
func TestFaultUpstreamMachineVanishes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p := proxytest.Start(t, "redis://"+m.serve(testredis.Start(t).Addr()), nil)
	holder := proxytest.Dial(t, p.Addr)
	token := holder.Lock("held 600")
	asking := map[string]*proxytest.Conn{"GET x": proxytest.Dial(t, p.Addr),
		"LOCK job 600": proxytest.Dial(t, p.Addr), proxytest.Unlock("held", token): holder,
		"LOCK held 600 WAIT 600": proxytest.Dial(t, p.Addr),
		"BLPOP list 0":           proxytest.Dial(t, p.Addr)}
	for _, c := range asking {
		c.Expect("PING", "+PONG\r\n")
	}
	since := m.vanish()
	for command, c := range asking {
		c.Send(command)
	}
	for command, c := range asking {
		got, err := c.TryReply()
		t.Logf("%s: after %v", command, time.Since(since).Round(10*time.Millisecond))
		if err != nil || !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("%s: %q, %v; want UPSTREAM within 70 s", command, got, err)
		}
	}
}

// An upstream that is stopped for longer than that, and accepts no more data, is not lost: its
// machine answers. Only the kernels' clocks can show that.
func TestFaultStoppedUpstreamIsNotLost(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Expect("PING", "+PONG\r\n")
	server.Pause()
	const many = 16
	sent := make(chan error, 1)
	go func() { // ends when all is sent, which needs Redis
		big := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n%s\r\n", 1<<20,
			strings.Repeat("x", 1<<20))
		_, err := io.WriteString(c, strings.Repeat(big, many))
		sent <- err
	}()
	time.Sleep(75 * time.Second)
	server.Resume()
	for i := range many {
		if got := c.Reply(); got != "+OK\r\n" {
			t.Fatalf("answer %d: %q", i, got)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
