//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/search"
	"lockproxy/proxy"
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

func newRing(
	t *testing.T, url string, owners, proxies int, change func(*proxy.Config), options string,
) *ring {
	r := &ring{}
	for range proxies {
		r.proxies = append(r.proxies, proxytest.Start(t, url, change))
	}
	for i := range owners {
		r.conns = append(r.conns, proxytest.Dial(t, r.proxies[i%proxies].Addr))
		r.conns[i].Lock(fmt.Sprintf("k%d 60 OWNER %s %s", i, owner(i), options))
	}
	return r
}

// wait has an owner wait for the next one's lock.
func (r *ring) wait(i int, options string) {
	next := (i + 1) % len(r.conns)
	r.conns[i].Send(fmt.Sprintf("LOCK k%d 60 OWNER %s WAIT 20 %s", next, owner(i), options))
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
func (r *ring) close(t *testing.T, within time.Duration, options string) {
	t.Helper()
	n := len(r.conns)
	for i := range n - 1 {
		r.wait(i, options)
		time.Sleep(60 * time.Millisecond)
	}
	began := time.Now()
	r.wait(n-1, options)
	last := r.conns[n-1]
	got := last.Answer()
	took := time.Since(began)
	if got != r.message() {
		t.Errorf("got %q, want %q", got, r.message())
	}
	if took > within {
		t.Errorf("refused after %v, want %v", took, within)
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

func TestADeadlockIsRefused(t *testing.T) {
	const atOnce, asked = 0, time.Second // within a proxy, and once proxies have told each other
	for _, c := range []struct {
		owners, proxies int
		options         string
		within          time.Duration
	}{
		{2, 1, "", atOnce}, {3, 1, "", atOnce},
		{2, 1, "SESSION", atOnce}, {2, 1, "LIMIT 1", atOnce},
		{2, 2, "", asked}, {3, 3, "", asked},
		{3, 2, "SESSION", asked},
		{6, 3, "LIMIT 1", asked},
	} {
		t.Run(fmt.Sprint(c.owners, c.proxies, c.options), func(t *testing.T) {
			virtualtest.Run(t, func(t *testing.T) {
				// Where no key is reserved for a waiter that has just left.
				url := virtualtest.StartStore(t).URL()
				newRing(t, url, c.owners, c.proxies, nil, c.options).close(t, c.within, c.options)
			})
		})
	}
}

func TestADeadlockIsRefusedInRESP3(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		r := newRing(t, server.URL(), 2, 2, nil, "")
		for _, c := range r.conns {
			c.Asked("HELLO 3", "%")
		}
		r.close(t, time.Second, "")
	})
}

// deadlockMode is what --deadlock sets.
func deadlockMode(mode string) func(*proxy.Config) {
	return func(cfg *proxy.Config) { cfg.Locks.Deadlock = mode }
}

func TestADeadlockIsOnlyLoggedOrIgnored(t *testing.T) {
	for mode, want := range map[string]uint64{search.Log: 1, search.Off: 0} {
		for _, proxies := range []int{1, 2} {
			t.Run(fmt.Sprint(mode, proxies), func(t *testing.T) {
				virtualtest.Run(t, func(t *testing.T) {
					r := newRing(t, virtualtest.StartStore(t).URL(), 2, proxies, deadlockMode(mode), "")
					r.wait(0, "")
					r.wait(1, "")
					testwait.Until(t, "it is found", func() bool {
						return deadlocksOf(r.proxies...) >= want
					})
					time.Sleep(1200 * time.Millisecond) // it is looked at twice meanwhile
					if found := deadlocksOf(r.proxies...); found != want {
						t.Errorf("%d deadlocks were found", found)
					}
					for i, c := range r.conns {
						if c.Arrived() {
							t.Errorf("owner %d: %q", i, c.Reply())
						}
					}
				})
			})
		}
	}
}

// Readers that both want to write wait for each other, and one that wants to write alone waits for
// itself.
func TestReadersThatBecomeWritersDeadlock(t *testing.T) {
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		a, b := dial(0), dial(1)
		a.Lock("doc 60 SHARED OWNER anna")
		b.Lock("doc 60 SHARED OWNER ben")
		a.Expect("LOCK doc 60 OWNER anna WAIT 5",
			`-DEADLOCK "anna" waits for "doc", held by "anna":…`)
		a.Expect("LOCK doc 60 OWNER anna WAIT 0.5 SHARED", ":…")
	})
}

// A semaphore is stuck only if all its holders are.
func TestASemaphoreWithAFreeHolderIsNoDeadlock(t *testing.T) {
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		a, b, c := dial(0), dial(1), dial(2)
		a.Lock("pool 60 LIMIT 2 OWNER anna")
		b.Lock("pool 60 LIMIT 2 OWNER ben")
		c.Lock("job 60 OWNER carl")
		a.Send("LOCK job 60 OWNER anna WAIT 20")
		time.Sleep(50 * time.Millisecond)
		c.Send("LOCK pool 60 LIMIT 2 OWNER carl WAIT 20")
		time.Sleep(1500 * time.Millisecond)
		if c.Arrived() {
			t.Fatalf("ben can release the pool, and carl got %q", c.Reply())
		}
		b.Send("LOCK job 60 OWNER ben WAIT 20")
		testwait.Until(t, "a refusal", func() bool { return b.Arrived() || c.Arrived() })
		got := ""
		for _, conn := range []*proxytest.Conn{b, c} { // the youngest of the cycle is ben
			if conn.Arrived() {
				got += conn.Reply()
			}
		}
		if !strings.HasPrefix(got,
			`-DEADLOCK "ben" waits for "job", held by "carl", who waits for `+
				`"pool", held by "ben":`) || strings.Count(got, "\n") != 1 {
			t.Errorf("got %q", got)
		}
	})
}

// Once a waiter has left, there is no cycle: also if that happens while proxies tell each other.
func TestAWaiterThatLeavesIsInNoDeadlock(t *testing.T) {
	const onItsWay = 150 * time.Millisecond // what was found before it left
	for _, after := range []int{200, 280, 290, 300, 310, 350} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			virtualtest.Run(t, func(t *testing.T) {
				r := newRing(t, virtualtest.StartStore(t).URL(), 3, 3, nil, "")
				r.wait(0, "")
				r.wait(1, "")
				time.Sleep(100 * time.Millisecond)
				r.wait(2, "")
				time.Sleep(time.Duration(after) * time.Millisecond) // it is looked at after 300
				r.conns[0].Close()
				proxytest.AwaitWaiters(t, r.proxies[0], "k1", 0)
				time.Sleep(onItsWay)
				before := r.conns[2].Arrived()
				if before {
					r.conns[2].Reply()
				}
				time.Sleep(700 * time.Millisecond)
				if r.conns[2].Arrived() {
					t.Errorf("%q", r.conns[2].Reply())
				}
				t.Logf("refused before: %v", before)
			})
		})
	}
}

// The same name is another lock in another database, and the same owner.
func TestADeadlockAcrossDatabases(t *testing.T) {
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		a, b := dial(0), dial(1)
		b.Expect("SELECT 3", "+OK\r\n")
		a.Lock("job 60 OWNER anna")
		b.Lock("job 60 OWNER ben")
		for _, c := range []*proxytest.Conn{a, b} { // who asks in the other's database
			c.Expect(map[bool]string{true: "SELECT 3", false: "SELECT 0"}[c == a], "+OK\r\n")
		}
		a.Send("LOCK job 60 OWNER anna WAIT 20")
		time.Sleep(60 * time.Millisecond)
		b.Expect("LOCK job 60 OWNER ben WAIT 20",
			`-DEADLOCK "ben" waits for "job", held by "anna", `+
				`who waits for "job" in database 3, held by "ben":…`)
	})
}

// Without the channels no deadlock across proxies is found, and none is made up. One within a proxy
// is found.
func TestDeadlocksWithoutTheChannels(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		server.Refuse("NOPERM no channels", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")
		newRing(t, server.URL(), 3, 1, nil, "").close(t, 0, "")
		r := newRing(t, server.URL(), 2, 2, nil, "")
		r.wait(0, "")
		r.wait(1, "")
		time.Sleep(10 * time.Second)
		if r.conns[1].Arrived() {
			t.Errorf("got %q", r.conns[1].Reply())
		}
	})
}
