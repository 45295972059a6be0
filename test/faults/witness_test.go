//go:build faults

package faults_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
	processes "lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// witness is a service and what single clients saw of it, for
// histories that show what is not promised.
type witness struct {
	t       *testing.T
	redis   *processes.Redis
	relay   *badlink.Link // from proxy 0 to redis
	proxies [2]*processes.Proxy
	notes   *history.Recorder
	faults  []history.Fault
	clients int
	clock   time.Duration // by how much Redis's clock, and those of foreign clients, are ahead
}

func newWitness(t *testing.T, persistence processes.Persistence, flags ...string) *witness {
	t.Helper()
	w := &witness{t: t, notes: &history.Recorder{}}
	path := builtPrograms(t).Proxy
	var err error
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.redis, err = processes.StartRedis(proxytest.Ctx, t.TempDir(), persistence, true)
	must(err)
	t.Cleanup(w.redis.Kill)
	w.relay, err = badlink.New(w.redis.Addr, 1)
	must(err)
	t.Cleanup(w.relay.Close)
	for i, upstream := range []string{w.relay.Addr(), w.redis.Addr} {
		w.proxies[i], err = processes.StartProxy(proxytest.Ctx, path, upstream, flags...)
		must(err)
		t.Cleanup(w.proxies[i].Kill)
	}
	return w
}

// dial returns a new client of a proxy.
func (w *witness) dial(proxy int) *witnessClient {
	w.t.Helper()
	c := w.connect(w.proxies[proxy].Addr)
	w.clients++
	return &witnessClient{w: w, Conn: c, id: w.clients, proxy: proxy}
}

func (w *witness) connect(addr string) *client.Conn {
	w.t.Helper()
	c, err := dial(addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// dial connects, however long that takes.
func dial(addr string) (*client.Conn, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return client.On(nc), nil
}

type witnessClient struct {
	*client.Conn
	w     *witness
	id    int
	proxy int
}

// lock takes a lock with a timeout in seconds and LOCK's options, and returns its token, 0 if
// another client has it. An error ends the test: it would show nothing.
func (c *witnessClient) lock(key string, timeout float64, more ...string) int64 {
	c.w.t.Helper()
	args := append([]string{"LOCK", key, strconv.FormatFloat(timeout, 'f', 3, 64)}, more...)
	o := history.Op{Client: c.id, Proxy: c.proxy, Kind: history.Lock, Key: key,
		Timeout: int64(timeout * 1e9), Session: strings.Contains(strings.Join(more, " "),
			"SESSION"),
		Wait: strings.Contains(strings.Join(more, " "), "WAIT")}
	o = client.Ask(c.w.notes, c.Conn, o, testwait.Patience, args...)
	if o.Outcome != history.OK && o.Outcome != history.Null {
		c.w.t.Fatalf("%q: %q %s", args, o.Outcome, o.Got)
	}
	return o.Result
}

func (c *witnessClient) unlock(key string, token int64) int64 {
	o := history.Op{Client: c.id, Proxy: c.proxy, Kind: history.Unlock, Key: key, Token: token}
	return client.Ask(c.w.notes, c.Conn, o, testwait.Patience, "UNLOCK", key,
		fmt.Sprint(token)).Result
}

func (c *witnessClient) relock(key string, token int64, timeout float64) int64 {
	o := history.Op{Client: c.id, Proxy: c.proxy, Kind: history.Relock, Key: key, Token: token,
		Timeout: int64(timeout * 1e9)}
	return client.Ask(c.w.notes, c.Conn, o, testwait.Patience, "RELOCK", key, fmt.Sprint(token),
		strconv.FormatFloat(timeout, 'f', 3, 64)).Result
}

// fault records what do does.
func (w *witness) fault(breaks history.Breaks, do func() error) {
	w.t.Helper()
	from := history.Now()
	if err := do(); err != nil {
		w.t.Fatal(err)
	}
	w.faults = append(w.faults, history.Fault{Kind: w.t.Name(), From: from, To: history.Now(),
		Breaks: breaks})
}

// shows fails unless the history breaks exactly these rules,
// and none once the fault is taken into account.
func (w *witness) shows(rules ...string) {
	w.t.Helper()
	h := history.History{Ops: w.notes.Drain()}
	found := map[string]bool{}
	for _, v := range check.Check(h, check.DefaultBounds()).Violations {
		found[v.Rule] = true
	}
	for _, rule := range rules {
		if !found[rule] {
			w.t.Errorf("the history does not break %q: docs/guarantees.md is wrong", rule)
		}
		delete(found, rule)
	}
	delete(found, "fence") // it reports the same
	if len(found) > 0 {
		w.t.Errorf("the history also breaks %v", found)
	}
	h.Faults = w.faults
	for _, v := range check.Check(h, check.DefaultBounds()).Violations {
		w.t.Errorf("although the fault excuses it: %v", v)
	}
}

// direct asks Redis itself.
func (w *witness) direct(args ...string) (r client.Reply, err error) {
	c, err := dial(w.redis.Addr)
	if err != nil {
		return r, err
	}
	defer c.Close()
	if r, err = c.Do(testwait.Patience, args...); err == nil && r.IsError() {
		err = fmt.Errorf("%q: %v", args, r)
	}
	return r, err
}

// integer is the number that Redis itself answers to a command.
func (w *witness) integer(args ...string) int64 {
	w.t.Helper()
	r, err := w.direct(args...)
	if err != nil || r.Type != ':' {
		w.t.Fatalf("%q: %v, %v", args, r, err)
	}
	return r.Int
}

// outlast returns when more than d has passed by the clock of histories. It is for what is true
// only after a time, such as what exceeds a tolerance. A machine that stops does not change that.
func outlast(t *testing.T, d time.Duration) {
	t.Helper()
	from := history.Now()
	testwait.Until(t, fmt.Sprint(d, " have passed"), func() bool {
		return history.Now()-from > d.Nanoseconds()
	})
}
