package real_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// judge records which client has which lock, according to the replies.
type judge struct {
	mu         sync.Mutex
	holders    map[string]int64 // tokens
	last       map[string]int64
	taken      int
	violations []string // two holders at a time
	backward   []string // tokens
	wrong      []string // replies
	lost       int      // locks whose holder learnt at UNLOCK that it had lost them
	unknown    int      // commands reported as of unknown outcome, or ended with the connection
	refused    int      // answered UPSTREAM or NOREPLICAS with nothing done
}

func newJudge() *judge { return &judge{holders: map[string]int64{}, last: map[string]int64{}} }

func (j *judge) took(key string, token int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.taken++
	if other := j.holders[key]; other != 0 {
		j.violations = append(j.violations, fmt.Sprintf("%s: %d while %d holds it", key, token,
			other))
	}
	if token <= j.last[key] {
		j.backward = append(j.backward, fmt.Sprintf("%s: %d after %d", key, token, j.last[key]))
	}
	j.last[key] = max(token, j.last[key])
	j.holders[key] = token
}

func (j *judge) frees(key string, token int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holders[key] == token {
		delete(j.holders, key)
	}
}

// failed counts an error reply. closed says that the connection ended instead.
func (j *judge) failed(got string, closed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case closed || strings.Contains(got, "unknown"):
		j.unknown++
	case strings.HasPrefix(got, "-UPSTREAM ") || strings.HasPrefix(got, "-NOREPLICAS ") ||
		strings.HasPrefix(got, "-READONLY ") || strings.HasPrefix(got, "-LOADING ") ||
		strings.HasPrefix(got, "-UNBLOCKED ") || strings.HasPrefix(got, "-MASTERDOWN "):
		j.refused++
	default:
		j.wrong = append(j.wrong, got)
	}
}

// had is how many locks were taken so far.
func (j *judge) had() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.taken
}

func (j *judge) count(n *int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	*n++
}

// workload is clients that lock, and clients that read and write, through one proxy, until stop.
type workload struct {
	t       *testing.T
	addr    string
	prefix  string
	judge   *judge
	locks   [4]atomic.Int64 // how often each was left for another one
	stopped chan struct{}
	running sync.WaitGroup
}

func startWorkload(t *testing.T, addr, prefix string) *workload {
	w := &workload{t: t, addr: addr, prefix: prefix, judge: newJudge(),
		stopped: make(chan struct{})}
	for i := range 8 {
		owed := "" // an UNLOCK without an answer
		w.running.Go(func() {
			w.clients(func(c *proxytest.Conn) bool {
				return w.lock(c, i%len(w.locks), &owed)
			})
		})
	}
	for i := range 4 {
		n := 0
		w.running.Go(func() {
			w.clients(func(c *proxytest.Conn) bool {
				n++
				return w.data(c, fmt.Sprintf("%s-data-%d-%d", prefix, i, n))
			})
		})
	}
	return w
}

func (w *workload) stop() *judge {
	close(w.stopped)
	w.running.Wait()
	return w.judge
}

// clients runs step on a connection, and on another when that has ended.
func (w *workload) clients(step func(c *proxytest.Conn) (alive bool)) {
	for {
		nc, err := proxytest.TryDial(w.addr)
		if err != nil {
			w.t.Error(err)
			return
		}
		c := proxytest.Dialed(w.t, nc)
		for alive := true; alive; {
			select {
			case <-w.stopped:
				nc.Close()
				return
			default:
			}
			alive = step(c)
		}
		nc.Close()
	}
}

// lock takes a lock, holds it for some round trips, mostly few, and releases it. First it releases
// what it owes. A lock that it does not get is left for another one: its release can be lost
// with the master.
func (w *workload) lock(c *proxytest.Conn, i int, owed *string) (alive bool) {
	if *owed != "" {
		return w.unlock(c, owed)
	}
	left := w.locks[i].Load()
	key := fmt.Sprintf("%s:%d:%d", w.prefix, i, left)
	c.Write([]byte("LOCK " + key + " 300 WAIT 1\r\n"))
	got, err := c.TryReply()
	if err != nil || got[0] == '-' {
		w.judge.failed(got, err != nil)
		return err == nil
	}
	if got[0] != ':' {
		w.locks[i].CompareAndSwap(left, left+1)
		return true
	}
	token := proxytest.Token(w.t, got)
	w.judge.took(key, token)
	hold := rand.N(5)
	if rand.N(20) == 0 {
		hold = 200
	}
	for ; hold > 0 && err == nil; hold-- {
		c.Write([]byte("PING\r\n"))
		_, err = c.TryReply()
	}
	w.judge.frees(key, token)
	*owed = fmt.Sprintf("UNLOCK %s %d\r\n", key, token)
	return err == nil && w.unlock(c, owed)
}

func (w *workload) unlock(c *proxytest.Conn, owed *string) (alive bool) {
	c.Write([]byte(*owed))
	got, err := c.TryReply()
	if err != nil || got[0] == '-' {
		w.judge.failed(got, err != nil)
		return err == nil
	}
	if *owed = ""; got == ":0\r\n" {
		w.judge.count(&w.judge.lost)
	}
	return true
}

// data sends a pipeline whose replies tell which request each belongs to.
func (w *workload) data(c *proxytest.Conn, id string) (alive bool) {
	c.Write([]byte("ECHO " + id + "a\r\nSET " + id + " 1 PX 300000\r\nECHO " + id + "b\r\nEXISTS " +
		id + "\r\n"))
	wants := []string{fmt.Sprintf("$%d\r\n%sa\r\n", len(id)+1, id), "+OK\r\n",
		fmt.Sprintf("$%d\r\n%sb\r\n", len(id)+1, id), ":1\r\n"}
	failed := false
	for _, want := range wants {
		got, err := c.TryReply()
		switch {
		case err != nil:
			w.judge.failed(got, true)
			return false
		case got[0] == '-':
			failed = true
			w.judge.failed(got, false)
		case got != want && !failed: // after a failure the rest can be from another server
			w.judge.failed(got, false)
		}
	}
	return true
}
