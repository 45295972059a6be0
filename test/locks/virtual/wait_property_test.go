//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// Clients do anything in front of and behind their waits, at two proxies, while any connection to
// Redis is frozen, reset or far, and Redis itself stops. These promises are judged:
//
//   - Each request has its own reply, in order, or the connection ends.
//   - No two clients have a lock, and tokens rise.
//   - A free lock is soon somebody's while somebody waits for it, once connections can be opened.
//     A place in its line that nobody takes delays that for no longer than the place is kept.
//   - When all is well again, each lock is free, unless a client was told that this is unknown.
//
// LOCKPROXY_TEST_SEED is one seed to repeat, LOCKPROXY_TEST_WAITS how many are tried.
func TestPropertyOfWaiting(t *testing.T) {
	seeds, first := 6, uint64(time.Now().UnixNano()%1_000_000)
	if n, err := strconv.Atoi(os.Getenv("LOCKPROXY_TEST_WAITS")); err == nil {
		seeds = n
	}
	if seed, err := strconv.ParseUint(os.Getenv("LOCKPROXY_TEST_SEED"), 10, 64); err == nil {
		seeds, first = 1, seed
	}
	for seed := first; seed < first+uint64(seeds) && !t.Failed(); seed++ {
		virtualtest.Run(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("LOCKPROXY_TEST_SEED=%d repeats it", seed)
				}
			}()
			newWaitsWorld(t, seed).run()
		})
	}
}

const (
	waitsLease = 40 * time.Second // longer than all that can delay a release
	waitsRun   = 60 * time.Second
	waitsFree  = 10 * time.Second // how long a lock may be free for which clients wait
)

// waitsWorld is two proxies in front of one store, what their clients were told, and what was done
// to them.
type waitsWorld struct {
	t       *testing.T
	seed    uint64
	store   *virtualtest.Store
	links   []*badlink.Link
	proxies []*proxytest.Proxy
	ends    time.Time // when clients begin no more

	mu   sync.Mutex
	keys map[string]*waitedKey // guarded by mu
	alls waitingAlls           // guarded by mu
	told map[string]int        // guarded by mu; how often each kind of answer came
	log  map[string][]string   // guarded by mu; what clients did, by their address
}

// waitedKey is what clients know of one lock.
type waitedKey struct {
	held    []heldSpan
	waiting int
	freed   time.Time // when the lock was free and somebody waited; zero otherwise
	holder  int64     // the token of who has it, as far as is known; 0 if it is free
	unknown time.Time // until when it may be held by nobody that knows
	placed  time.Time // until when its places are kept
	longest time.Duration
}

// waitingAlls are the LOCKALLs of a and c that wait.
type waitingAlls struct {
	n    int
	left time.Time // when there was none any more
}

// heldSpan is a time in which a client may believe that it has the lock.
type heldSpan struct {
	client   int
	token    int64
	session  bool
	addr     string // of the connection that was told
	from, to time.Time
}

func newWaitsWorld(t *testing.T, seed uint64) *waitsWorld {
	w := &waitsWorld{t: t, seed: seed, store: virtualtest.StartStore(t),
		keys: map[string]*waitedKey{}, told: map[string]int{}, log: map[string][]string{}}
	for _, key := range []string{"a", "b", "c"} {
		w.keys[key] = &waitedKey{}
	}
	for range 2 {
		link := proxytest.LinkTo(t, w.store)
		w.links = append(w.links, link)
		w.proxies = append(w.proxies, proxytest.Start(t, "redis://"+link.Addr(),
			func(c *proxy.Config) { c.DialTimeout = time.Second }))
	}
	w.ends = time.Now().Add(waitsRun)
	return w
}

func (w *waitsWorld) run() {
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(w.seed, uint64(i)))
			for time.Now().Before(w.ends) {
				w.live(i, random)
				time.Sleep(time.Duration(1+random.IntN(200)) * time.Millisecond)
			}
		})
	}
	for i := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(w.seed, uint64(100+i)))
			for time.Now().Before(w.ends) {
				w.livePlaced(100+i, random)
				time.Sleep(time.Duration(1+random.IntN(200)) * time.Millisecond)
			}
		})
	}
	wg.Go(func() { w.disturb(rand.New(rand.NewPCG(w.seed, 1000))) })
	wg.Wait()
	w.judge()
}

// disturb makes connections bad, a second or two apart, and all good in the end.
func (w *waitsWorld) disturb(random *rand.Rand) {
	for time.Now().Before(w.ends) {
		time.Sleep(rand.N(2 * time.Second))
		link, lasts := w.links[random.IntN(2)], time.Duration(random.IntN(6000))*time.Millisecond
		switch random.IntN(6) {
		case 0: // what is open is never answered again, as behind a firewall that has forgotten it
			link.Freeze()
			time.Sleep(lasts)
			link.Thaw()
		case 1:
			link.Reset()
		case 2:
			link.ResetOne()
		case 3:
			link.Away(time.Duration(random.IntN(100)) * time.Millisecond)
		case 4:
			lasts /= 3
			w.store.Pause()
			time.Sleep(lasts)
			w.store.Resume()
		case 5:
			lasts /= 3
			link.HoldReplies()
			time.Sleep(lasts)
			link.Release()
		}
	}
	for _, link := range w.links {
		link.Thaw()
		link.Away(0)
	}
}

// answered notes that a request's wait is over. An empty answer is none.
func (w *waitsWorld) answered(r *request, got string) {
	if len(r.keys) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	word, _, _ := strings.Cut(got, " ")
	if strings.HasPrefix(got, ":") {
		word = "token"
	}
	w.told[strings.TrimSpace(word)]++
	if r.begun && len(r.keys) > 1 {
		if w.alls.n--; w.alls.n == 0 {
			w.alls.left = time.Now()
		}
	}
	for _, key := range r.keys {
		k := w.keys[key]
		if r.begun {
			if k.waiting--; k.waiting == 0 {
				k.freed = time.Time{}
			}
		}
		// What an OWNER may have been given is not released: its lock may be an older one.
		if strings.Contains(got, "unknown") || got == "" && strings.Contains(r.words, "OWNER") {
			k.unknown = time.Now().Add(waitsLease)
		}
	}
}

func (w *waitsWorld) took(client int, addr string, r request, token int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range r.keys {
		k := w.keys[key]
		if !k.freed.IsZero() {
			since := w.obtainable(key)
			if k.longest = max(k.longest, time.Since(since)); time.Since(since) > waitsFree {
				w.t.Errorf("%s was free from %v until client %d was given it at %s: %+v", key,
					since, client, addr, w.alls)
			}
		}
		if slices.ContainsFunc(k.held, func(s heldSpan) bool { return s.token == token }) {
			continue // an OWNER is told again, and its release may be on its way
		}
		k.held = append(k.held, heldSpan{client: client, token: token, addr: addr,
			session: strings.Contains(r.words, "SESSION"), from: time.Now()})
		k.holder, k.freed = token, time.Time{}
	}
}

// obtainable is since when a free lock must have been given to one that waits for it. Before that it
// may have been held by nobody that knows, or a LOCKALL in front may have waited for one that was.
// mu is held.
func (w *waitsWorld) obtainable(key string) time.Time {
	k := w.keys[key]
	since := later(later(k.freed, k.unknown), k.placed)
	if other, is := map[string]string{"a": "c", "c": "a"}[key]; is {
		until := later(w.keys[other].unknown, w.keys[other].placed)
		if w.alls.n == 0 && w.alls.left.Before(until) {
			until = w.alls.left
		}
		since = later(since, until)
	}
	return since
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sessionEnds notes that a client's connection ends, and its session locks with it.
func (w *waitsWorld) sessionEnds(client int) {
	w.end(func(s heldSpan) bool { return s.client == client && s.session })
}

// end notes that clients no longer have these locks.
func (w *waitsWorld) end(these func(heldSpan) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		for i, s := range k.held {
			if s.to.IsZero() && these(s) {
				k.held[i].to = time.Now()
			}
		}
	}
}

// note notes what a client does, to be told if something fails.
func (w *waitsWorld) note(c *proxytest.Conn, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	who := c.LocalAddr().String()
	w.log[who] = append(w.log[who], time.Now().Format("05.000000 ")+fmt.Sprintf(format, args...))
}

// judge finds out what is left when all clients are gone.
func (w *waitsWorld) judge() {
	for name, k := range w.keys {
		for i, s := range k.held[1:] {
			before := k.held[i]
			if s.client != before.client && s.from.Before(before.to) || s.token < before.token {
				w.t.Errorf("%s: %+v, but before %+v\n%s", name, s, before,
					strings.Join(append(w.log[before.addr], w.log[s.addr]...), "\n"))
			}
		}
		start := time.Now()
		c := proxytest.Dial(w.t, w.proxies[0].Addr)
		if got := c.Do("LOCKINFO " + name); len(got) > 10 {
			w.t.Log(name, strings.ReplaceAll(got, "\r\n", " "))
			for who, lines := range w.log {
				if strings.Contains(got, "\r\n"+who+"\r\n") {
					w.t.Log(who, strings.Join(lines, "\n"))
				}
			}
		}
		got := ""
		testwait.Until(w.t, name+" is free", func() bool {
			got = c.Do("LOCK " + name + " 1 WAIT 60")
			return got[0] == ':'
		})
		if took := time.Since(start); took > 2*time.Second && later(k.unknown, k.placed).Before(start) {
			w.t.Errorf("%s: free only after %v", name, took)
		}
		c.Do("UNLOCK " + name)
		w.t.Logf("seed %d: %s: %d times held, free for %v, and %v after the end; %v",
			w.seed, name, len(k.held), k.longest, time.Since(start), w.told)
	}
}
