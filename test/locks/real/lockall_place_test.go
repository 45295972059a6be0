package real_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// twoProxies starts two proxies of one server, and returns a function that connects to one of them.
func twoProxies(t *testing.T) (ps [2]*proxytest.Proxy, dial func(int) *proxytest.Conn) {
	t.Helper()
	server := testredis.Start(t)
	for i := range ps {
		ps[i] = proxytest.Start(t, server.URL(), nil)
	}
	return ps, func(i int) *proxytest.Conn { return proxytest.Dial(t, ps[i].Addr) }
}

// awaitPlaces waits until a client is told of n waiters for a lock: those of its own proxy, and one
// for each other proxy that has any.
func awaitPlaces(t *testing.T, at *proxytest.Conn, key string, n int) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("%d have places for %s", n, key), func() bool {
		return strings.HasPrefix(at.Do("LOCKINFO "+key+" WAITERS"), fmt.Sprintf("*%d\r\n", n))
	})
}

// A LOCKALL has its place in the queue of a free lock from its arrival, at all proxies, though at its
// own it is not the first that waits for another of its locks.
func TestLockAllHasItsPlaceElsewhere(t *testing.T) {
	t.Parallel()
	ps, dial := twoProxies(t)
	holder, before, all, behind := dial(1), dial(0), dial(0), dial(0)
	held := holder.Lock("b 600")
	before.Send("LOCK b 600 WAIT 0")
	proxytest.AwaitWaiters(t, ps[0], "b", 1)
	all.Send("LOCKALL 600 2 a b WAIT 0")
	proxytest.AwaitWaiters(t, ps[0], "b", 2)
	behind.Send("LOCK a 600 WAIT 0", "UNLOCK a")
	awaitPlaces(t, dial(0), "a", 2)
	late := dial(1)
	awaitPlaces(t, late, "a", 1)
	late.Expect("LOCK a 600", "$-1\r\n")
	late.Expect("LOCK a 600 SHARED", "$-1\r\n")
	late.Send("LOCK a 600 WAIT 0", "UNLOCK a")
	awaitPlaces(t, dial(1), "a", 2)
	holder.Expect(proxytest.Unlock("b", held), ":1\r\n")
	first := proxytest.Token(t, before.Reply())
	before.Expect(proxytest.Unlock("b", first), ":1\r\n")
	token := proxytest.Token(t, all.Reply())
	all.Expect(fmt.Sprintf("UNLOCKALL %d 2 a b", token), ":2\r\n")
	for _, other := range []*proxytest.Conn{behind, late} {
		got := proxytest.Token(t, other.Reply())
		if got < token {
			t.Errorf("another was given the lock before LOCKALL: %d, then %d", got, token)
		}
		other.WantReply(":1\r\n")
	}
}

// Two LOCKALLs at two proxies, each behind others at one of its locks: what waits in front of one
// does not wait for the other.
func TestPlacesOfLockAllsMakeNoCycle(t *testing.T) {
	t.Parallel()
	ps, dial := twoProxies(t)
	keys := [2]string{"b", "a"} // at which others are in front, by the proxy
	holder := dial(0)
	heldA, heldB := holder.Lock("a 600"), holder.Lock("b 600")
	var singles, alls []*proxytest.Conn
	for i, key := range keys {
		for n := range 2 {
			c := dial(i)
			c.Send("LOCK " + key + " 600 WAIT 0")
			if n == 1 {
				c.Send("UNLOCK " + key)
			}
			proxytest.AwaitWaiters(t, ps[i], key, n+1)
			singles = append(singles, c)
		}
	}
	for i, key := range keys {
		c := dial(i)
		c.Send("LOCKALL 600 2 a b WAIT 0", "UNLOCK a", "UNLOCK b")
		proxytest.AwaitWaiters(t, ps[i], key, 3)
		alls = append(alls, c)
		awaitPlaces(t, dial(1-i), keys[1-i], 3+i)
	}
	holder.Expect(proxytest.Unlock("a", heldA), ":1\r\n")
	holder.Expect(proxytest.Unlock("b", heldB), ":1\r\n")
	// Both have their locks now, unless the machine has stopped for a second: then a LOCKALL can be in
	// front of one of them, and waits for the other's lock.
	for left := []int{0, 1}; len(left) > 0; {
		testwait.Until(t, "one who waited first has its lock", func() bool {
			if singles[2*left[0]].Arrived() {
				return true
			}
			slices.Reverse(left)
			return false
		})
		i := left[0]
		proxytest.Token(t, singles[2*i].Reply())
		holder.Expect("DEL "+keys[i], ":1\r\n") // with no hand-over
		left = left[1:]
	}
	for i := range keys { // in whatever order
		proxytest.Token(t, singles[2*i+1].Reply())
		singles[2*i+1].WantReply(":1\r\n")
		proxytest.Token(t, alls[i].Reply())
		alls[i].WantReply(":1\r\n")
		alls[i].WantReply(":1\r\n")
	}
}
