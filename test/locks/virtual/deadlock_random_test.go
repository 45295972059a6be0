//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// randomOwner takes a few locks in a random order and releases them, again and again.
type randomOwner struct {
	*oracle
	name   string
	proxy  int
	conn   *proxytest.Conn
	rng    *rand.Rand
	shares bool // also SHARED, LIMIT and LOCKALL
	has    map[string]string
}

func (o *randomOwner) run(t *testing.T, over *atomic.Bool) {
	pause := func() { time.Sleep(time.Duration(o.rng.IntN(30)) * time.Millisecond) }
	for !over.Load() {
		o.has = map[string]string{}
		for range 2 + o.rng.IntN(2) {
			if !o.lock(t) {
				break
			}
			pause()
		}
		for key := range o.has {
			o.conn.Expect("UNLOCK "+key, ":1\r\n")
		}
		pause()
	}
}

// lock takes one lock, or several. It reports whether it did.
func (o *randomOwner) lock(t *testing.T) bool {
	w := ownerWaits{owner: o.name, proxy: o.proxy, has: o.has}
	n := 1
	if o.shares {
		n = max(1, o.rng.IntN(8)-4)
	}
	for range n {
		key := fmt.Sprintf("k%d", o.rng.IntN(7))
		if _, again := o.has[key]; !again && !slices.Contains(w.keys, key) {
			w.keys = append(w.keys, key)
		}
	}
	command := ""
	switch len(w.keys) {
	case 0:
		return true
	case 1:
		if o.shares {
			w.mode = []string{"", "", " SHARED", " SHARED", " LIMIT 1", " LIMIT 2"}[o.rng.IntN(6)]
		}
		command = "LOCK " + w.keys[0] + " 60" + w.mode
	default:
		command = fmt.Sprintf("LOCKALL 60 %d %s", len(w.keys), strings.Join(w.keys, " "))
	}
	o.waits(w)
	o.conn.Send(command + " WAIT 20 OWNER " + o.name)
	got, err := o.conn.TryReply()
	wrong := ""
	if strings.HasPrefix(got, "-DEADLOCK ") {
		wrong = o.judge(got)
	}
	o.answered(o.name)
	switch {
	case wrong != "":
		t.Errorf("a false report: %s: %q", wrong, got)
	case strings.HasPrefix(got, ":"):
		for _, key := range w.keys {
			o.has[key] = w.mode
		}
		return true
	case !strings.HasPrefix(got, "-DEADLOCK "):
		t.Errorf("%s: %s: %q, %v", o.name, command, got, err)
	}
	return false
}

// Named owners take locks of all kinds in random orders, over one proxy or three. What they are
// told of deadlocks is compared with what all of them do: no report is false, and no cycle lasts
// for longer than 2 s, also if proxies lose messages. LOCKPROXY_TEST_DEADLOCKS is for how long, 3 s
// of virtual time if it is not set.
func TestDeadlocksOfRandomLockOrders(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		length := 3 * time.Second
		if text := os.Getenv("LOCKPROXY_TEST_DEADLOCKS"); text != "" {
			var err error
			if length, err = time.ParseDuration(text); err != nil {
				t.Fatal(err)
			}
		}
		for name, c := range map[string]struct {
			proxies       int
			shared, loses bool
		}{
			"exclusive, messages are lost":                  {proxies: 3, loses: true},
			"all kinds at one proxy":                        {proxies: 1, shared: true},
			"all kinds at three proxies, messages are lost": {proxies: 3, shared: true, loses: true},
		} {
			virtualtest.Part(t, name, func(t *testing.T) {
				server := virtualtest.StartStore(t)
				o, over := newOracle(), &atomic.Bool{}
				var proxies []*proxytest.Proxy
				var links []*attackRelay
				for i := range c.proxies {
					links = append(links, startAttackRelay(t, server, time.Millisecond))
					proxies = append(proxies, proxytest.Start(t, "redis://"+links[i].addr, nil))
				}
				seed := rand.Uint64()
				var running sync.WaitGroup
				for i := range 9 {
					name, conn := owner(i), proxytest.Dial(t, proxies[i%c.proxies].Addr)
					owner := randomOwner{oracle: o, name: name, proxy: i % c.proxies, conn: conn,
						rng: rand.New(rand.NewPCG(seed, uint64(i))), shares: c.shared}
					running.Go(func() { owner.run(t, over) })
				}
				ends, kill := time.Now().Add(length), time.Now()
				for time.Now().Before(ends) {
					time.Sleep(10 * time.Millisecond)
					o.check(2 * time.Second)
					if c.loses && time.Since(kill) > 600*time.Millisecond {
						kill = time.Now()
						for _, link := range links {
							link.cutSubscribers()
						}
					}
				}
				over.Store(true)
				running.Wait()
				o.mu.Lock()
				defer o.mu.Unlock()
				t.Logf("seed %d: %d deadlocks, all true, with %d waits behind a LOCKALL; each was "+
					"told at most %v after its last wait had begun, %v if that had closed it",
					seed, o.reports, o.behind, o.worst.Round(time.Millisecond),
					o.closed.Round(time.Millisecond))
				if len(o.late) > 0 || o.reports == 0 || o.closed > 2*time.Second {
					t.Errorf("%d reports; these lasted too long: %v", o.reports, o.late)
				}
				testwait.Until(t, "all are counted", func() bool {
					return deadlocksOf(proxies...) >= uint64(o.reports)
				})
				if found := deadlocksOf(proxies...); found != uint64(o.reports) {
					t.Errorf("%d deadlocks were found, %d reported", found, o.reports)
				}
			})
		}
	})
}
