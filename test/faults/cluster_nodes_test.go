//go:build faults

package faults_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
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
	loses   bool           // a fault can lose what has been acknowledged
	rounds  []int          // of each client: how many in a row have been all right
	trouble time.Time      // when something was last not right
}

func startClusterLoad(t *testing.T, addr string, clients int) *clusterLoad {
	l := &clusterLoad{t: t, addr: addr, stopped: make(chan struct{}), refused: map[string]int{},
		rounds: make([]int, clients)}
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
	right, stored := true, true
	for i, command := range commands {
		got, err := c.TryReply()
		if err != nil {
			l.note("", fmt.Sprintf("%s: %v", command, err), false, !proxytest.IsTimeout(err))
			l.endRound(id, false)
			return false
		}
		want := "+OK\r\n"
		if i%2 == 1 {
			text := fmt.Sprintf("load:%d:%d=%d", id, i/2, n)
			want = fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		}
		l.note(got, want, stored, false)
		right = right && got == want
		stored = got == "+OK\r\n" // if it is the answer to SET, for the next one
	}
	l.endRound(id, right)
	return true
}

// endRound counts a client's rounds.
func (l *clusterLoad) endRound(id int, right bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rounds[id]++
	if !right {
		l.rounds[id], l.trouble = 0, time.Now()
	}
}

// note counts a reply. stored says that the SET before a GET was acknowledged; closed, that the
// connection was closed instead.
func (l *clusterLoad) note(got, want string, stored, closed bool) {
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
		(!stored || l.loses):
		// An older value of the same key: its SET was lost, or
		// was acknowledged by a master that has died since.
	default:
		l.wrong = append(l.wrong, fmt.Sprintf("%q, not %q", got, want))
	}
}

// enoughRounds are as many as a client makes in a moment.
const enoughRounds = 100

// recovered waits until each client has had so many rounds from now on, with only right replies.
func (l *clusterLoad) recovered() {
	l.t.Helper()
	l.mu.Lock()
	clear(l.rounds)
	l.mu.Unlock()
	testwait.Until(l.t, "all is answered again", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.Min(l.rounds) >= enoughRounds
	})
}

// during does something, and returns when all is served again, and how long there was trouble.
// loses says that it can lose what has been acknowledged.
func (l *clusterLoad) during(loses bool, do func()) time.Duration {
	l.t.Helper()
	began := time.Now()
	l.mu.Lock()
	l.loses, l.trouble = loses, began
	l.mu.Unlock()
	do()
	l.recovered()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loses = false
	return l.trouble.Sub(began)
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
// served again after the cluster is whole. The figures are printed with -v.
func TestClusterFaults(t *testing.T) {
	c := testredis.StartCluster(t, 3, 1)
	p := proxytest.Start(t, c.URL(), nil)
	load := startClusterLoad(t, p.Addr, 8)
	load.recovered()
	const safe, loses = false, true
	step := func(name string, loses bool, do func()) {
		t.Helper()
		load.counts()
		last := load.during(loses, do)
		t.Logf("%-40s last trouble after %6v: %s", name, last.Round(time.Millisecond),
			load.counts())
	}
	hot := c.Slot("load:0:0")
	step("a slot moves and comes back", safe, func() {
		from := c.MasterOf(hot)
		for _, to := range append(c.Nodes[:3:3], from) {
			c.Migrate(hot, to)
		}
	})
	var added *testredis.Server
	step("a node is added and takes a third", safe, func() {
		added = c.AddNode()
		c.MigrateAll(c.Nodes[1], added)
	})
	step("the node gives all back and is removed", safe, func() {
		c.MigrateAll(added, c.Nodes[1])
		c.RemoveNode(added)
	})
	step("a replica takes over by agreement", safe, func() { c.Failover(c.MasterOf(hot)) })
	var dead *testredis.Server
	step("a master is killed", loses, func() {
		dead = c.MasterOf(hot)
		c.KillMaster(dead)
	})
	step("the master comes back as a replica", safe, func() { c.Rejoin(t, dead) })
	step("a master is stopped, and continues later", loses, func() {
		master := c.MasterOf(hot)
		replica := c.ReplicaOf(master)
		master.Pause()
		c.WaitReplaced(replica)
		load.recovered() // without the stopped master
		master.Resume()
		c.WaitOK()
	})
	load.stop()
	if len(load.wrong) > 0 {
		t.Errorf("wrong replies: %q", load.wrong[:min(5, len(load.wrong))])
	}
}
