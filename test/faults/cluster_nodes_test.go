//go:build faults

package faults_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// clusterLoad is clients that write and read keys of all slots
// through one proxy, in pipelines, and check every reply.
type clusterLoad struct {
	t       *testing.T
	addr    string
	stopped chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	right   int
	unknown int            // commands reported as of unknown outcome
	refused map[string]int // reported as not run, by the message
	ended   int            // connections that were closed
	wrong   []string       // other replies
	served  []time.Time    // when each client's last round was all answered
	trouble time.Time      // the time of the last wrong reply
}

func startClusterLoad(t *testing.T, addr string, clients int) *clusterLoad {
	l := &clusterLoad{t: t, addr: addr, stopped: make(chan struct{}), refused: map[string]int{},
		served: make([]time.Time, clients)}
	for i := range clients {
		l.running.Go(func() { l.client(i) }) // ends when stopped; stop waits for it
	}
	return l
}

func (l *clusterLoad) stop() {
	close(l.stopped)
	l.running.Wait()
}

func (l *clusterLoad) client(id int) {
	for n := 0; ; {
		nc, err := net.Dial("tcp", l.addr)
		if err != nil {
			l.t.Error(err)
			return
		}
		c := proxytest.Dialed(l.t, nc)
		for alive := true; alive; n++ {
			select {
			case <-l.stopped:
				nc.Close()
				return
			default:
			}
			alive = l.round(c, id, n)
		}
		nc.Close()
	}
}

// round writes eight keys and reads them again, all at once.
func (l *clusterLoad) round(c *proxytest.Conn, id, n int) (alive bool) {
	var commands []string
	for i := range 8 {
		commands = append(commands, fmt.Sprintf("SET load:%d:%d load:%d:%d=%d", id, i, id, i, n),
			fmt.Sprintf("GET load:%d:%d", id, i))
	}
	c.Send(commands...)
	for i, command := range commands {
		got, err := c.TryReply()
		if err != nil {
			l.note("", fmt.Sprintf("%s: %v", command, err), !proxytest.IsTimeout(err))
			return false
		}
		want := "+OK\r\n"
		if i%2 == 1 {
			text := fmt.Sprintf("load:%d:%d=%d", id, i/2, n)
			want = fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		}
		l.note(got, want, false)
	}
	l.mu.Lock()
	l.served[id] = time.Now()
	l.mu.Unlock()
	return true
}

// note counts a reply; closed says that the connection was closed instead.
func (l *clusterLoad) note(got, want string, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, _, _ := strings.Cut(want, "=")
	_, key, _ = strings.Cut(key, "\r\n")
	switch {
	case got == want:
		l.right++
		return
	case closed:
		l.ended++
	case strings.HasPrefix(got, "-UPSTREAM ") && strings.Contains(got, "unknown"):
		l.unknown++
	case strings.HasPrefix(got, "-UPSTREAM "), strings.HasPrefix(got, "-CLUSTERDOWN "),
		strings.HasPrefix(got, "-LOADING "), strings.HasPrefix(got, "-MASTERDOWN "),
		strings.HasPrefix(got, "-TRYAGAIN "):
		l.refused[strings.Join(strings.Fields(got)[:2], " ")]++
	case want[0] == '$' && (strings.Contains(got, key+"=") || got == "$-1\r\n") &&
		time.Since(l.trouble) < 10*time.Second:
		// An older value of the same key: its SET was lost, or
		// was acknowledged by a master that has died since.
	default:
		l.wrong = append(l.wrong, fmt.Sprintf("%q, not %q", got, want))
	}
	l.trouble = time.Now()
}

// recovered waits until every reply was right, and no client has waited, for half a second, and
// returns how long that took since began.
func (l *clusterLoad) recovered(began time.Time) time.Duration {
	l.t.Helper()
	var last time.Time
	testwait.Until(l.t, "all is answered again", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		last = l.trouble
		for _, served := range l.served {
			if time.Since(served) > 400*time.Millisecond {
				l.trouble = time.Now()
			}
		}
		return time.Since(last) > 500*time.Millisecond && time.Since(began) > 500*time.Millisecond
	})
	return max(0, last.Sub(began))
}

// counts reports the counts and resets them.
func (l *clusterLoad) counts() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf("%d right, %d unknown, %v refused, %d connections ended, %d wrong", l.right,
		l.unknown, l.refused, l.ended, len(l.wrong))
	l.right, l.unknown, l.refused, l.ended = 0, 0, map[string]int{}, 0
	return text
}

// During faults of nodes no reply is wrong, a command that can have run is reported so, and all is
// served again soon after the cluster is whole. The figures are printed with -v.
func TestClusterFaults(t *testing.T) {
	c := testredis.StartCluster(t, 3, 1)
	p := proxytest.Start(t, c.URL(), nil)
	load := startClusterLoad(t, p.Addr, 8)
	load.recovered(time.Now())
	step := func(name string, most time.Duration, do func()) {
		t.Helper()
		load.counts()
		began := time.Now()
		do()
		took := load.recovered(began)
		t.Logf("%-40s last trouble after %6v: %s", name, took.Round(time.Millisecond),
			load.counts())
		if took > most {
			t.Errorf("%s: trouble for %v", name, took)
		}
	}
	hot := c.Slot("load:0:0")
	step("a slot moves and comes back", 5*time.Second, func() {
		from := c.MasterOf(hot)
		for _, to := range append(c.Nodes[:3:3], from) {
			c.Migrate(hot, to)
		}
	})
	var added *testredis.Server
	step("a node is added and takes a third", 10*time.Second, func() {
		added = c.AddNode()
		c.MigrateAll(c.Nodes[1], added)
	})
	step("the node gives all back and is removed", 10*time.Second, func() {
		c.MigrateAll(added, c.Nodes[1])
		c.RemoveNode(added)
	})
	step("a replica takes over by agreement", 5*time.Second, func() { c.Failover(c.MasterOf(hot)) })
	var dead *testredis.Server
	step("a master is killed", 15*time.Second, func() {
		dead = c.MasterOf(hot)
		c.KillMaster(dead)
	})
	step("the master comes back as a replica", 5*time.Second, func() { c.Rejoin(t, dead) })
	step("a master is stopped, and continues later", 20*time.Second, func() {
		master := c.MasterOf(hot)
		replica := c.ReplicaOf(master)
		master.Pause()
		c.WaitReplaced(replica)
		load.recovered(time.Now()) // without the stopped master
		master.Resume()
		c.WaitOK()
	})
	load.stop()
	if len(load.wrong) > 0 {
		t.Errorf("wrong replies: %q", load.wrong[:min(5, len(load.wrong))])
	}
}
