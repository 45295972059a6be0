package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/names"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Waiters wait on while the master is replaced; a new LOCK gets UPSTREAM meanwhile, and so does a
// waiter whose time has expired.
func TestWaitersOutlastAFailover(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	var all []*outlasting // by --min-replicas
	for minReplicas := range 2 {
		all = append(all, startOutlasting(t, g, minReplicas))
	}
	for _, o := range all {
		testwait.Until(t, "the replicas have the lock", func() bool {
			return g.Servers[1].Ask("EXISTS", o.key) == ":1" &&
				g.Servers[2].Ask("EXISTS", o.key) == ":1"
		})
		o.short.Send("LOCK " + o.key + " 600 WAIT 1.5")
		proxytest.AwaitWaiters(t, o.p, o.key, 3, o.short)
	}
	g.Servers[0].Kill()
	for _, o := range all { // if the machine is slow, the short wait can have ended before
		o.waits = len(o.p.Server.Locks().Waiters(names.Lock{Key: o.key}, 3)) == 3
	}
	for _, o := range all {
		if got := o.free.Do("LOCK " + o.key + " 600"); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("LOCK while there is no master: %q", got)
		}
		if got := o.free.Do("LOCK " + o.key + " 600"); !strings.HasPrefix(got,
			"-UPSTREAM cannot reach ") {
			t.Errorf("LOCK while there is no master: %q", got)
		}
		if got := o.short.Reply(); o.waits && !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("a wait that ended while there was no master: %q", got)
		}
	}
	master := g.WaitReplaced(t, g.Servers[0])
	for _, o := range all {
		served(t, o.p, master)
		o.takeTurns(t)
	}
}

// outlasting is clients of a proxy that want one lock, each with a connection.
type outlasting struct {
	p                                  *proxytest.Proxy
	key                                string
	token                              int64 // the holder's
	holder, first, second, short, free *proxytest.Conn
	waits                              bool // short did, when the master was killed
}

func startOutlasting(t *testing.T, g *testredis.Group, minReplicas int) *outlasting {
	t.Helper()
	p := proxytest.Start(t, g.URL(), proxytest.WithSlowReplicas(minReplicas))
	o := &outlasting{p: p, key: fmt.Sprint("job", minReplicas), holder: proxytest.Dial(t, p.Addr),
		first: proxytest.Dial(t, p.Addr), second: proxytest.Dial(t, p.Addr),
		short: proxytest.Dial(t, p.Addr), free: proxytest.Dial(t, p.Addr)}
	o.token = o.holder.Lock(o.key + " 600")
	o.free.Expect("PING", "+PONG\r\n")
	for i, w := range []*proxytest.Conn{o.first, o.second} {
		w.Send("LOCK " + o.key + " 600 WAIT 0")
		proxytest.AwaitWaiters(t, p, o.key, i+1)
	}
	return o
}

// takeTurns has the lock released by its holder, and by each waiter that is given it.
func (o *outlasting) takeTurns(t *testing.T) {
	t.Helper()
	if got := o.holder.Do(proxytest.Unlock(o.key, o.token)); got != ":1\r\n" {
		t.Fatalf("UNLOCK by an earlier session: %q", got)
	}
	next := proxytest.Token(t, o.first.Reply())
	o.first.Expect(proxytest.Unlock(o.key, next), ":1\r\n")
	last := proxytest.Token(t, o.second.Reply())
	o.second.Expect(proxytest.Unlock(o.key, last), ":1\r\n")
	if o.token >= next || next >= last {
		t.Errorf("tokens %d, %d, %d", o.token, next, last)
	}
}
