package real_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// allChaos is clients of two proxies whose links to Redis are cut, and who leave while they wait.
type allChaos struct {
	t     *testing.T
	held  [8]atomic.Int64 // the tokens of clients that have the locks, by the key
	last  [8]atomic.Int64 // the highest token of each key
	given atomic.Int64
	lost  atomic.Int64 // clients that did not learn the outcome
	ended atomic.Int64 // rounds

	server *testredis.Server
}

// pause lasts for a number of questions.
func (a *allChaos) pause(n int) {
	for range n {
		a.server.Ask("PING")
	}
}

// round is one LOCKALL or LOCK of a client, and its release. It reports whether the connection is
// good for another.
func (a *allChaos) round(c *proxytest.Conn, addr string, random *rand.Rand) bool {
	defer a.ended.Add(1)
	set := random.Perm(len(a.held))[:1+random.IntN(4)]
	names := ""
	for _, k := range set {
		names += fmt.Sprintf(" {all}%d", k)
	}
	wait := ""
	if random.IntN(4) > 0 {
		wait = fmt.Sprintf(" WAIT %d", 1+random.IntN(5))
	}
	session := random.IntN(2) == 0
	if session {
		wait += " SESSION"
	}
	c.Send(fmt.Sprintf("LOCKALL 300 %d%s%s", len(set), names, wait))
	if session && random.IntN(8) == 0 { // a token that is on its way would keep other locks
		a.pause(random.IntN(20))
		c.Close() // while it waits, or while the locks are on their way
		return false
	}
	got, err := c.TryReply()
	var token int64
	if _, scanned := fmt.Sscanf(got, ":%d", &token); err != nil || scanned != nil {
		a.lost.Add(1)
		return err == nil && got == "$-1\r\n"
	}
	a.given.Add(1)
	for _, k := range set {
		// A session's locks are released when its connection is lost, before it knows.
		if other := a.held[k].Load(); other != 0 ||
			!session && !a.held[k].CompareAndSwap(0, token) {
			a.t.Errorf("{all}%d: token %d while %d holds it", k, token, other)
		}
		for last := a.last[k].Load(); ; last = a.last[k].Load() {
			if token <= last {
				a.t.Errorf("{all}%d: token %d after %d", k, token, last)
			} else if !a.last[k].CompareAndSwap(last, token) {
				continue
			}
			break
		}
	}
	a.pause(random.IntN(3))
	for _, k := range set {
		a.held[k].CompareAndSwap(token, 0)
	}
	unlock := fmt.Sprintf("UNLOCKALL %d %d%s", token, len(set), names)
	c.Send(unlock)
	got, err = c.TryReply()
	if err == nil && got[0] == ':' {
		if got != fmt.Sprintf(":%d\r\n", len(set)) {
			a.t.Errorf("of %d locks of one token %s were left", len(set), strings.TrimSpace(got))
		}
		return true
	}
	for err != nil || got[0] != ':' { // until it is known
		if c, err = a.dial(addr); err != nil {
			a.t.Error(err)
			return false
		}
		c.Send(unlock)
		got, err = c.TryReply()
		c.Close()
	}
	return false
}

func (a *allChaos) dial(addr string) (*proxytest.Conn, error) {
	nc, err := proxytest.TryDial(addr)
	if err != nil {
		return nil, err
	}
	return proxytest.Dialed(a.t, nc), nil
}

// Whatever happens, a LOCKALL has all of its locks or none, nobody else has one of them, and in the
// end all are free.
func TestLockAllUnderFaults(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	a := &allChaos{t: t, server: server}
	var links [2]*badlink.Link
	var proxies [2]*proxytest.Proxy
	for i := range links {
		links[i] = proxytest.LinkTo(t, server)
		proxies[i] = proxytest.Start(t, "redis://"+links[i].Addr(), nil)
	}
	const faults, roundsBetween = 40, 10
	var over atomic.Bool
	more := func() bool { return !over.Load() }
	var running sync.WaitGroup
	for i := range 16 {
		running.Go(func() {
			random := rand.New(rand.NewPCG(11, uint64(i)))
			for more() {
				c, err := a.dial(proxies[i%2].Addr)
				if err != nil {
					t.Error(err)
					return
				}
				for more() && a.round(c, proxies[i%2].Addr, random) {
				}
				c.Close()
			}
		})
	}
	random := rand.New(rand.NewPCG(12, 0))
	rounds := func(n int) { // what is held keeps a proxy's clients waiting, and those of the other go on
		t.Helper()
		until := a.ended.Load() + int64(n)
		testwait.Until(t, "the clients go on", func() bool { return a.ended.Load() >= until })
	}
	for range faults {
		rounds(random.IntN(roundsBetween))
		switch link := links[random.IntN(2)]; random.IntN(3) {
		case 0:
			link.ResetOne()
		case 1:
			link.Reset()
		case 2:
			link.Set(badlink.State{HoldUp: true, HoldDn: random.IntN(2) == 0})
			rounds(random.IntN(4))
			link.Set(badlink.State{})
		}
	}
	testwait.Until(t, "enough have been given locks", func() bool { return a.given.Load() > 100 })
	over.Store(true)
	running.Wait()
	t.Logf("%d times given, %d without an answer", a.given.Load(), a.lost.Load())
	c := proxytest.Dial(t, proxies[0].Addr)
	c.Send("LOCKALL 300 8 {all}0 {all}1 {all}2 {all}3 {all}4 {all}5 {all}6 {all}7 WAIT 0")
	if got, err := c.TryReply(); err != nil || got[0] != ':' {
		t.Errorf("in the end: %q, %v", got, err)
	}
}
