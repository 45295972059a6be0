//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// queueing is clients in the queues of locks, at several proxies.
type queueing struct {
	*testing.T
	server  *virtualtest.Store
	proxies []*proxytest.Proxy
}

// overOneToThree runs a test at one proxy, where each client has the same, at two and at three.
func overOneToThree(t *testing.T, test func(q *queueing)) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprintf("%d proxies", n), func(t *testing.T) {
			virtualtest.Run(t, func(t *testing.T) {
				q := &queueing{T: t, server: virtualtest.StartStore(t)}
				for range n {
					q.proxies = append(q.proxies, proxytest.Start(t, q.server.URL(), nil))
				}
				test(q)
			})
		})
	}
}

// dial connects the client i, to the proxies in turn.
func (q *queueing) dial(i int) *proxytest.Conn {
	return proxytest.Dial(q, q.proxies[i%len(q.proxies)].Addr)
}

// waits has the client i wait for a key, until its proxy and then the others know that it does.
func (q *queueing) waits(i int, c *proxytest.Conn, key, command string) {
	q.Helper()
	at, next := q.dial(i), q.dial(i+1)
	count := func(c *proxytest.Conn, field string) int {
		return strings.Count(c.Do("LOCKINFO "+key+" WAITERS"), "\n"+field+"\r")
	}
	before := count(at, "until_ms")
	c.Send(command)
	testwait.Until(q, key+" is waited for", func() bool {
		return count(at, "until_ms") > before &&
			(len(q.proxies) == 1 || before > 0 || count(next, "proxy") > 0)
	})
	time.Sleep(2 * time.Millisecond) // what two proxies ask within one is in no order
	synctest.Wait()
}

// refuses expects that a client is told of a deadlock, in time.
func (q *queueing) refuses(c *proxytest.Conn, command, want string) {
	q.Helper()
	began := time.Now()
	if command != "" {
		c.Send(command)
	}
	got, err := c.TryReply()
	took := time.Since(began)
	if err != nil || !strings.HasPrefix(got, "-DEADLOCK "+want+": the lock was not acquired") {
		q.Errorf("got %q, %v, want %q", got, err, want)
	}
	if took > time.Second {
		q.Errorf("refused after %v", took)
	}
}

// refusesNobody expects that nobody is told anything for as long as a deadlock can take.
func (q *queueing) refusesNobody(conns ...*proxytest.Conn) {
	q.Helper()
	time.Sleep(1200 * time.Millisecond)
	for i, c := range conns {
		if c.Arrived() {
			q.Errorf("client %d: %q", i, c.Reply())
		}
	}
}

// An owner that waits by LOCKALL waits for all that have one of the keys.
func TestALOCKALLThatClosesACycleIsRefused(t *testing.T) {
	overOneToThree(t, func(q *queueing) {
		anna, ben, carl := q.dial(0), q.dial(1), q.dial(2)
		anna.Lock("a 60 OWNER anna")
		ben.Lock("b 60 OWNER ben")
		carl.Lock("c 60")
		q.waits(1, ben, "a", "LOCK a 60 OWNER ben WAIT 20")
		q.refuses(anna, "LOCKALL 60 3 b c d OWNER anna WAIT 20",
			`"anna" waits for "b", held by "ben", who waits for "a", held by "anna"`)
		anna.Expect("UNLOCK a", ":1\r\n")
		proxytest.Token(q.T, ben.Answer())
		ben.Expect("LOCK d 60 OWNER ben WAIT 5", ":…") // the LOCKALL has left all queues
	})
}

// The LOCKALL waits first, and the owner that closes the cycle is refused.
func TestACycleThroughALOCKALLIsRefused(t *testing.T) {
	overOneToThree(t, func(q *queueing) {
		anna, ben := q.dial(0), q.dial(1)
		anna.Lock("a 60 OWNER anna")
		ben.Lock("b 60 OWNER ben")
		q.waits(0, anna, "b", "LOCKALL 60 2 c b OWNER anna WAIT 20")
		q.refuses(ben, "LOCK a 60 OWNER ben WAIT 20",
			`"ben" waits for "a", held by "anna", who waits for "b", held by "ben"`)
		ben.Expect("UNLOCK b", ":1\r\n")
		proxytest.Token(q.T, anna.Answer())
	})
}

// A LOCKALL keeps its place at a lock that is free. The holder of its other lock must not wait
// there.
func TestAWaitBehindALOCKALLDeadlocks(t *testing.T) {
	for owner, by := range map[string]string{"": "", " OWNER anna": ` of "anna"`} {
		t.Run("LOCKALL"+by, func(t *testing.T) {
			overOneToThree(t, func(q *queueing) {
				anna, ben := q.dial(0), q.dial(1)
				ben.Lock("b 60 OWNER ben")
				q.waits(0, anna, "a", "LOCKALL 60 2 a b WAIT 20"+owner)
				q.refuses(ben, "LOCK a 60 OWNER ben WAIT 20",
					`"ben" waits for "a", behind a LOCKALL`+by+` that waits for "b", held by "ben"`)
				ben.Expect("UNLOCK b", ":1\r\n")
				proxytest.Token(q.T, anna.Answer())
			})
		})
	}
}

// Of two LOCKALLs the later waits for the earlier, which others wait for.
func TestALOCKALLBehindALOCKALLDeadlocks(t *testing.T) {
	overOneToThree(t, func(q *queueing) {
		anna, ben, carl := q.dial(0), q.dial(1), q.dial(2)
		ben.Lock("b 60 OWNER ben")
		carl.Lock("c 60 OWNER carl")
		q.waits(0, anna, "a", "LOCKALL 60 2 a c WAIT 20")
		q.waits(1, ben, "a", "LOCKALL 60 2 a d OWNER ben WAIT 20")
		q.refuses(carl, "LOCK b 60 OWNER carl WAIT 20", `"carl" waits for "b", held by "ben", who `+
			`waits for "a", behind a LOCKALL that waits for "c", held by "carl"`)
	})
}

// Who has one of several locks would wait for itself.
func TestALOCKALLOfWhatItsOwnerHasDeadlocks(t *testing.T) {
	overOneToThree(t, func(q *queueing) {
		c, again := q.dial(0), q.dial(1)
		c.Lock("a 60 OWNER anna")
		q.refuses(c, "LOCKALL 60 2 a b OWNER anna WAIT 20", `"anna" waits for "a", held by "anna"`)
		c.Expect("UNLOCK a", ":1\r\n")
		token := proxytest.Token(q.T, c.Do("LOCKALL 60 2 a b OWNER anna WAIT 20"))
		if t := proxytest.Token(q.T, again.Do("LOCKALL 60 2 a b OWNER anna WAIT 20")); t != token {
			q.Errorf("again: %d, then %d", token, t)
		}
	})
}

// It is no deadlock while a holder that the LOCKALL waits for can go on, nor after the LOCKALL has
// left.
func TestAWaitBehindALOCKALLIsNoDeadlock(t *testing.T) {
	overOneToThree(t, func(q *queueing) {
		anna, ben, carl := q.dial(0), q.dial(1), q.dial(2)
		ben.Lock("b 60 OWNER ben")
		carl.Lock("c 60 OWNER carl")
		q.waits(0, anna, "a", "LOCKALL 60 2 a c OWNER anna WAIT 20")
		q.waits(1, ben, "a", "LOCK a 60 OWNER ben WAIT 20")
		q.refusesNobody(anna, ben)
		anna.Close()
		proxytest.Token(q.T, ben.Answer())
		q.waits(2, carl, "b", "LOCK b 60 OWNER carl WAIT 20")
		q.refusesNobody(carl)
		ben.Expect("UNLOCK b", ":1\r\n")
		proxytest.Token(q.T, carl.Answer())
	})
}

// A reader waits behind an exclusive waiter, which waits for all readers.
func TestAReaderBehindAWriterDeadlocks(t *testing.T) {
	overOneToThree(t, func(q *queueing) {
		writer, anna, carl := q.dial(0), q.dial(1), q.dial(2)
		anna.Lock("doc 60 SHARED OWNER anna")
		carl.Lock("job 60 OWNER carl")
		q.dial(2).Lock("doc 60 SHARED")
		q.waits(0, writer, "doc", "LOCK doc 60 WAIT 20")
		q.waits(2, carl, "doc", "LOCK doc 60 SHARED OWNER carl WAIT 20")
		q.refuses(anna, "LOCK job 60 OWNER anna WAIT 20",
			`"anna" waits for "job", held by "carl", who waits for "doc", held by "anna"`)
		writer.Close()
		proxytest.Token(q.T, carl.Answer())
	})
}

// A reader behind one that waits for a place waits until one of the places is free: at the same
// proxy. A release of any holder can let it pass one of another proxy, so there all must be stuck.
func TestAReaderBehindALimitDeadlocks(t *testing.T) {
	overOneToThree(t, func(q *queueing) {
		limit, anna, ben, carl := q.dial(0), q.dial(1), q.dial(2), q.dial(2)
		anna.Lock("pool 60 LIMIT 2 OWNER anna")
		ben.Lock("pool 60 LIMIT 2 OWNER ben")
		carl.Lock("job 60 OWNER carl")
		q.waits(0, limit, "pool", "LOCK pool 60 LIMIT 2 WAIT 20")
		q.waits(2, carl, "pool", "LOCK pool 60 SHARED OWNER carl WAIT 20")
		q.waits(1, anna, "job", "LOCK job 60 OWNER anna WAIT 20")
		q.refusesNobody(anna, carl)
		q.refuses(ben, "LOCK job 60 OWNER ben WAIT 20",
			`"ben" waits for "job", held by "carl", who waits for "pool", held by "ben"`)
		limit.Close()
		proxytest.Token(q.T, carl.Answer())
	})
}

// An owner asks again, behind a LOCKALL, for a lock that its first request is then given: it has
// the lock, and is told so.
func TestAnOwnersRetryBehindALockallIsNoDeadlock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for _, retry := range []string{"LOCK {a}1 30 WAIT 8 OWNER me",
			"LOCKALL 30 1 {a}1 WAIT 8 OWNER me"} {
			server, p := virtualtest.StartBoth(t)
			q := proxytest.Start(t, server.URL(), nil)
			holder, first := proxytest.Dial(t, q.Addr), proxytest.Dial(t, q.Addr)
			all, again := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			other := proxytest.Dial(t, p.Addr)
			other.Lock("{a}2 30")
			token := holder.Lock("{a}1 30")
			first.Send(strings.Replace(retry, "8", "20", 1))
			proxytest.AwaitWaiters(t, q, "{a}1", 1)
			time.Sleep(10 * time.Millisecond) // otherwise LOCKALL would come in the same millisecond
			all.Send("LOCKALL 30 2 {a}1 {a}2 WAIT 20 OWNER other")
			proxytest.AwaitWaiters(t, p, "{a}1", 1)
			again.Send(retry)
			proxytest.AwaitWaiters(t, p, "{a}1", 2)
			holder.Expect(proxytest.Unlock("{a}1", token), ":1\r\n")
			given := proxytest.Token(t, first.Reply())
			if got := again.Reply(); got != fmt.Sprintf(":%d\r\n", given) {
				t.Errorf("%s: got %q, want token %d", retry, got, given)
			}
			if n := deadlocksOf(p, q); n > 0 {
				t.Errorf("%s: %d deadlocks were found", retry, n)
			}
		}
	})
}
