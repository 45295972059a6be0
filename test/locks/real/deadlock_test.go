package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// deadlocksOf is how many deadlocks proxies have found.
func deadlocksOf(proxies ...*proxytest.Proxy) (n uint64) {
	for _, p := range proxies {
		n += p.Server.Stats().Locks.Deadlocks
	}
	return n
}

// ring is owners at proxies in turn, each of which has a lock. The last to wait for the next one's
// closes a cycle.
type ring struct {
	proxies []*proxytest.Proxy
	conns   []*proxytest.Conn
}

func owner(i int) string { return fmt.Sprintf("owner-%d", i) }

func newRing(t *testing.T, url string, owners, proxies int) *ring {
	r := &ring{}
	for range proxies {
		r.proxies = append(r.proxies, proxytest.Start(t, url, nil))
	}
	for i := range owners {
		r.conns = append(r.conns, proxytest.Dial(t, r.proxies[i%proxies].Addr))
		r.conns[i].Lock(fmt.Sprintf("k%d 600 OWNER %s", i, owner(i)))
	}
	return r
}

// wait has an owner wait for the next one's lock.
func (r *ring) wait(i int) {
	next := (i + 1) % len(r.conns)
	r.conns[i].Send(fmt.Sprintf("LOCK k%d 600 OWNER %s WAIT 600", next, owner(i)))
}

// message is the error that the owner which waits last is answered.
func (r *ring) message() string {
	n := len(r.conns)
	text := fmt.Sprintf("-DEADLOCK %q", owner(n-1))
	for i := range n {
		if i > 0 {
			text += ", who"
		}
		text += fmt.Sprintf(" waits for \"k%d\", held by %q", i, owner(i))
	}
	return text + ": the lock was not acquired; release what others wait for, and ask again\r\n"
}

// close has all wait, the last at last, and expects that the last is refused, and that the others
// then get their locks one after another.
func (r *ring) close(t *testing.T) {
	t.Helper()
	n := len(r.conns)
	for i := range n - 1 {
		r.wait(i)
		proxytest.AwaitWaiters(t, r.proxies[i%len(r.proxies)], fmt.Sprintf("k%d", i+1), 1)
	}
	r.wait(n - 1)
	last := r.conns[n-1]
	if got := last.Answer(); got != r.message() {
		t.Errorf("got %q, want %q", got, r.message())
	}
	last.Expect(fmt.Sprintf("UNLOCK k%d", n-1), ":1\r\n")
	for i := n - 2; i >= 0; i-- {
		proxytest.Token(t, r.conns[i].Answer())
		r.conns[i].Expect(fmt.Sprintf("UNLOCK k%d", i), ":1\r\n")
		r.conns[i].Expect(fmt.Sprintf("UNLOCK k%d", i+1), ":1\r\n")
	}
	testwait.Until(t, "it is counted", func() bool { return deadlocksOf(r.proxies...) > 0 })
	if found := deadlocksOf(r.proxies...); found != 1 {
		t.Errorf("%d deadlocks were found", found)
	}
}

// The ways to this error, and how soon it comes, are tested in virtual time.
func TestADeadlockIsRefused(t *testing.T) {
	t.Parallel()
	newRing(t, testredis.Start(t).URL(), 3, 3).close(t)
}

// A user who may not use the channels is told of deadlocks within one proxy. That no other is found
// is tested in virtual time.
func TestDeadlocksWithoutTheChannels(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--user", "app", "on", ">pw", "~*", "+@all", "resetchannels")
	url := strings.Replace(server.URL(), "://", "://app:pw@", 1)
	newRing(t, url, 3, 1).close(t)
}
