package proxytest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// OnceHistory is what clients of several proxies do by ONCE and DONE to a few keys, while the test
// does something to Redis or to proxies. It judges that there are never two makers of a value, that
// nobody is given a value that no DONE has stored, or one older than another was given before, that
// no DONE of a lost claim is stored, and that everybody is answered.
type OnceHistory struct {
	T     testing.TB
	Addrs []string // of the proxies
	Keys  []string
	// Loses says that Redis may lose claims: then two can make a value, but only the last is stored.
	Loses bool
	// Rewinds says that Redis may lose values: then older ones can come back.
	Rewinds bool

	makers  []onceKey
	stored  sync.Map // every value that a DONE was sent with
	refused sync.Map // every value whose DONE was refused
	passed  sync.Map // every value that was given to somebody
	ended   sync.Map // tokens of claims that endReturned has ended

	// Releaser is a connection by which the claims are ended that nobody has, if set: a failover
	// has lost their release, or the proxy was killed that renewed them. Returned is how many these
	// were.
	Releaser *Conn
	Returned int

	Values, Made, Lost atomic.Int64 // given to clients; stored by DONE; answers that were lost
}

// onceKey is what is known of one key.
type onceKey struct {
	making atomic.Int64 // clients that have been told to make it, and have not answered yet
	newest atomic.Int64 // the greatest token
	given  atomic.Int64 // how often a client was given a value or a token
	value  atomic.Int64 // the greatest token of a value that was given

	seen  string // what endReturned has seen last
	looks int    // how often that has not changed
}

// Run has clients do steps each, rounds times. Meanwhile disturb runs once in a round: clients go on
// until it has ended.
func (h *OnceHistory) Run(clients, steps, rounds int, disturb func(random *rand.Rand)) {
	h.T.Helper()
	seed := rand.Uint64()
	h.T.Logf("seed %d", seed)
	h.makers = make([]onceKey, len(h.Keys))
	all := make([]*onceClient, clients)
	for i := range all {
		addr := h.Addrs[i%len(h.Addrs)]
		all[i] = &onceClient{addr, h.dial(addr), rand.New(rand.NewPCG(seed, uint64(i)))}
	}
	random := rand.New(rand.NewPCG(seed, uint64(clients)))
	for range rounds {
		disturbed, answered := make(chan struct{}), make(chan struct{})
		var round sync.WaitGroup
		for _, c := range all {
			round.Go(func() { c.work(h, steps, disturbed) })
		}
		go func() { round.Wait(); close(answered) }() // ends with the round
		disturb(random)
		close(disturbed)
		testwait.Until(h.T, "everybody is answered", func() bool {
			if h.Releaser != nil {
				h.endReturned()
			}
			select {
			case <-answered:
				return true
			default:
				return false
			}
		})
	}
	h.refused.Range(func(value, _ any) bool {
		if _, given := h.passed.Load(value); given {
			h.T.Errorf("%q was given, though its DONE was refused", value)
		}
		return true
	})
	h.T.Logf("%d values given, %d made, %d answers lost", h.Values.Load(), h.Made.Load(),
		h.Lost.Load())
	if h.Values.Load() == 0 || h.Made.Load() == 0 {
		h.T.Error("nothing was made or given")
	}
}

// AwaitMaker returns when a client makes a value.
func (h *OnceHistory) AwaitMaker() {
	testwait.Until(h.T, "a client makes a value", func() bool {
		for k := range h.makers {
			if h.makers[k].making.Load() > 0 {
				return true
			}
		}
		return false
	})
}

type onceClient struct {
	addr   string
	conn   *Conn
	random *rand.Rand
}

// work does steps, and more until a channel is closed. Then nobody waits for this client: what it
// was told to make it has made.
func (c *onceClient) work(h *OnceHistory, steps int, until <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-until:
			if n >= steps {
				return
			}
		default:
		}
		if !h.step(c.conn, c.random) {
			c.conn.Close()
			c.conn = h.dial(c.addr)
		}
	}
}

// dial connects to a proxy, which may be killed and started again.
func (h *OnceHistory) dial(addr string) *Conn {
	var nc net.Conn
	var err error
	if !testwait.Holds(func() bool { nc, err = dial(Ctx, "tcp", addr); return err == nil }) {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { nc.Close() })
	return Dialed(h.T, nc)
}

// try sends a command to a proxy that may be killed, and returns its reply.
func try(c *Conn, command string) (string, error) {
	c.Write(wire.Append(nil, strings.Fields(command)...)) // if it fails, there is no reply
	return c.TryReply()
}

// fails reports whether a reply says that Redis cannot answer now, or was lost.
func fails(got string, err error) bool {
	for _, code := range []string{"-UPSTREAM ", "-TRYAGAIN ", "-NOREPLICAS ", "-OOM ",
		"-CLUSTERDOWN "} {
		if strings.HasPrefix(got, code) {
			return true
		}
	}
	return err != nil
}

// step is one ONCE of a client, and what follows. It reports whether the connection is good for
// another.
func (h *OnceHistory) step(c *Conn, random *rand.Rand) bool {
	k := random.IntN(len(h.Keys))
	key, wait := h.Keys[k], ""
	if random.IntN(4) > 0 {
		wait = " WAIT 0"
	}
	before := h.makers[k].value.Load()
	got, err := try(c, "ONCE "+key+" 600 SESSION"+wait)
	var token int64
	switch _, scanned := fmt.Sscanf(got, ":%d", &token); {
	case fails(got, err):
		h.Lost.Add(1)
		return false
	case got == "$-1\r\n":
		if wait != "" {
			h.T.Errorf("%s: null after a wait that does not end", key)
		}
		return true
	case scanned != nil:
		if value, of := h.stored.Load(got); !of || value != k {
			h.T.Errorf("%s: %q, which no DONE was sent", key, got)
		}
		h.gave(k, got, before)
		if h.Values.Add(1); random.IntN(3) == 0 {
			got, err = try(c, "DEL "+key)
		}
		return !fails(got, err)
	}
	return h.make(c, random, k, token)
}

// gave judges a value that a client was given. before is the newest that others had been given when
// it asked.
func (h *OnceHistory) gave(k int, value string, before int64) {
	of := &h.makers[k]
	of.given.Add(1)
	h.passed.Store(value, true)
	var token int64
	_, text, _ := strings.Cut(value, h.Keys[k]+":")
	fmt.Sscan(text, &token)
	if token < before && !h.Rewinds {
		h.T.Errorf("%s: the value of token %d is given after that of %d", h.Keys[k], token, before)
	}
	raise(&of.value, token)
}

func raise(to *atomic.Int64, n int64) {
	for was := to.Load(); was < n; was = to.Load() {
		to.CompareAndSwap(was, n)
	}
}

// make answers a ONCE that has told a client to make the value of a key.
func (h *OnceHistory) make(c *Conn, random *rand.Rand, k int, token int64) bool {
	key, of := h.Keys[k], &h.makers[k]
	of.given.Add(1)
	if _, ended := h.ended.Load(token); ended {
		h.Lost.Add(1) // replicas have acknowledged it so late that nobody seemed to have it
		return false
	}
	if n := of.making.Add(1); n != 1 && !h.Loses {
		h.T.Errorf("%s: token %d makes %d at once", key, token, n)
	}
	raise(&of.newest, token)
	for range random.IntN(4) { // it takes a while
		if got, err := try(c, "PING"); fails(got, err) {
			of.making.Add(-1)
			h.Lost.Add(1)
			return false // the claim may be lost
		}
	}
	if random.IntN(8) == 0 {
		of.making.Add(-1)
		return false // it closes, which gives up
	}
	value, text := "", ""
	if random.IntN(4) > 0 {
		text = fmt.Sprintf("%s:%d", key, token)
		h.stored.Store(wire.Bulk(text), k)
		value = " " + text + " EX 600"
	}
	of.making.Add(-1)
	newest := of.newest.Load()
	got, err := try(c, fmt.Sprintf("DONE %s %d%s", key, token, value))
	switch {
	case fails(got, err):
		h.Lost.Add(1)
		return false
	case got == ":1\r\n":
		if newest > token {
			h.T.Errorf("%s: DONE of token %d is taken, though %d was given out", key, token, newest)
		}
		if value != "" {
			h.Made.Add(1)
		}
	case got == ":0\r\n" && h.Loses:
		h.refused.Store(wire.Bulk(text), true)
	default:
		h.T.Errorf("DONE %s %d: %q, though it had the claim", key, token, got)
	}
	return true
}

// endReturned ends claims that are back although they had been released, which a failover can lose:
// no client has them, and they would last until their timeouts.
func (h *OnceHistory) endReturned() {
	for k, key := range h.Keys {
		of := &h.makers[k]
		prefix := key + ":once:"
		_, claim, _ := strings.Cut(h.Releaser.Do("LOCKSCAN 0 MATCH "+prefix+"* COUNT 100000"), prefix)
		claim, _, _ = strings.Cut(claim, "\r\n")
		state := fmt.Sprint(claim, of.given.Load())
		if of.looks++; state != of.seen || claim == "" || of.making.Load() > 0 {
			of.seen, of.looks = state, 0
		}
		if of.looks == unclaimed {
			var token int64
			_, held, _ := strings.Cut(h.Releaser.Do("LOCKINFO "+prefix+claim), "token\r\n")
			fmt.Sscanf(held, ":%d", &token)
			h.ended.Store(token, true)
			h.Releaser.Do(fmt.Sprintf("UNLOCK %s%s %d", prefix, claim, token))
			h.Returned++
		}
	}
}

// unclaimed is how often a claim that nobody has is looked at.
const unclaimed = 300
