package locks_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// A pipeline of ONCE, DONE and other commands is answered in order, by an event loop.
func TestOnceInAPipeline(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := proxytest.Token(t, c.Do("ONCE k 600"))
	server.Ask("SCRIPT", "FLUSH")
	c.Send("GET k", fmt.Sprintf("DONE k %d made EX 600", token), "ONCE k 600", "GET k",
		"ONCE k 600 WAIT 0", "ONCE other 600", "ONCE k 600 EARLY 900", "PING")
	c.WantReply("$-1\r\n")
	c.WantReply(":1\r\n")
	for range 3 {
		c.WantReply("$4\r\nmade\r\n")
	}
	proxytest.Token(t, c.Reply())
	again := proxytest.Token(t, c.Reply())
	c.WantReply("+PONG\r\n")
	other.Send("ONCE k 600 EARLY 900", "ONCE other 600", "ONCE k 600 EARLY 10 WAIT 0")
	other.WantReply("$4\r\nmade\r\n")
	other.WantReply("$-1\r\n")
	other.WantReply("$4\r\nmade\r\n")
	c.Expect(fmt.Sprintf("DONE k %d", again), ":1\r\n")
}

// What a user may not do to the value, ONCE and DONE may not do for it.
func TestOnceRights(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	as := func(user string) *proxytest.Conn {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("AUTH "+user+" pw", "+OK\r\n")
		return c
	}
	for user, rights := range map[string][]string{
		"all":     {"~k*", "+@all"},
		"waiter":  {"~k*", "+@all", "-del"},
		"reader":  {"~k*", "+@all", "-set"},
		"blind":   {"~k*", "+@all", "-get"},
		"neither": {"~x*", "+@all"},
		"claims":  {"~k:once:*", "+@all"},
	} {
		server.Ask(append([]string{"ACL", "SETUSER", user, "on", ">pw", "&*"}, rights...)...)
	}
	all := as("all")
	token := proxytest.Token(t, all.Do("ONCE k 600"))
	for _, user := range []string{"blind", "neither", "claims"} {
		c := as(user)
		c.Expect("ONCE k 600", "-NOPERM …")
		c.Expect("ONCE k 600 WAIT 0", "-NOPERM …")
	}
	for _, user := range []string{"reader", "neither", "claims"} {
		c := as(user)
		c.Expect(fmt.Sprintf("DONE k %d stolen", token), "-NOPERM …")
	}
	if got := server.Ask("EXISTS", "k"); got != ":0" {
		t.Errorf("a user without the right stored a value: %s", got)
	}
	waiter := as("waiter")
	waiter.Send("ONCE k 600 WAIT 0")
	proxytest.AwaitWaiters(t, p, claimOf(t, all, "k"), 1)
	all.Expect(fmt.Sprintf("DONE k %d value", token), ":1\r\n")
	waiter.WantReply("$5\r\nvalue\r\n")
}

// claimOf is the name of the claim of a key that is being made.
func claimOf(t *testing.T, c *proxytest.Conn, key string) string {
	t.Helper()
	scan := c.Do("LOCKSCAN 0 MATCH " + key + ":once:* COUNT 100000")
	_, name, found := strings.Cut(scan, key+":once:")
	if !found {
		t.Fatalf("no claim of %q in %q", key, scan)
	}
	name, _, _ = strings.Cut(name, "\r\n")
	return key + ":once:" + name
}

// onceHistory is what clients of several proxies do to a few keys.
type onceHistory struct {
	t      *testing.T
	keys   []string
	makers []atomic.Int64 // of each key, that have been told to make it and have not answered yet
	stored sync.Map       // every value that a DONE was sent with
	values atomic.Int64   // that clients were given
	made   atomic.Int64   // that DONE has stored
	lost   atomic.Int64   // answers
}

// step is one ONCE of a client, and what follows. It reports whether the connection is good for
// another.
func (h *onceHistory) step(c *proxytest.Conn, random *rand.Rand) bool {
	k := random.IntN(len(h.keys))
	wait := ""
	if random.IntN(4) > 0 {
		wait = " WAIT 0"
	}
	c.Send("ONCE " + h.keys[k] + " 600 SESSION" + wait)
	got, err := c.TryReply()
	var token int64
	switch _, scanned := fmt.Sscanf(got, ":%d", &token); {
	case err != nil || strings.HasPrefix(got, "-UPSTREAM "):
		h.lost.Add(1)
		return false
	case got == "$-1\r\n":
		if wait != "" {
			h.t.Errorf("%s: null after a wait without an end", h.keys[k])
		}
		return true
	case scanned != nil:
		if value, of := h.stored.Load(got); !of || value != k {
			h.t.Errorf("%s: %q, which no DONE was sent", h.keys[k], got)
		}
		if h.values.Add(1); random.IntN(3) == 0 {
			c.Send("DEL " + h.keys[k])
			_, err = c.TryReply()
		}
		return err == nil
	}
	if n := h.makers[k].Add(1); n != 1 {
		h.t.Errorf("%s: token %d makes %d at once", h.keys[k], token, n)
	}
	if random.IntN(8) == 0 {
		h.makers[k].Add(-1)
		return false // it closes, which gives up
	}
	value := ""
	if random.IntN(4) > 0 {
		value = fmt.Sprintf(" %s:%d", h.keys[k], token)
		h.stored.Store(proxytest.Bulk(strings.TrimSpace(value)), k)
		value += " EX 600"
	}
	h.makers[k].Add(-1)
	c.Send(fmt.Sprintf("DONE %s %d%s", h.keys[k], token, value))
	switch got, err = c.TryReply(); {
	case err != nil || strings.HasPrefix(got, "-UPSTREAM "):
		h.lost.Add(1)
		return false
	case got != ":1\r\n":
		h.t.Errorf("DONE %s %d: %q, though it had the claim", h.keys[k], token, got)
	case value != "":
		h.made.Add(1)
	}
	return true
}

// Never are there two makers of a value, nobody is given a value that was not made, and nobody waits
// forever, while clients leave, values are deleted, connections to Redis are killed and scripts are
// flushed.
func TestOnceChaos(t *testing.T) {
	t.Parallel()
	const clients, steps, everySteps = 12, 60, 40
	server := testredis.Start(t)
	addrs := []string{proxytest.Start(t, server.URL(), nil).Addr,
		proxytest.Start(t, server.URL(), nil).Addr}
	h := &onceHistory{t: t, keys: []string{"{a}1", "{a}2", "b"}, makers: make([]atomic.Int64, 3)}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	direct := proxytest.Dial(t, server.Addr())
	var mu sync.Mutex // guards direct
	var count atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			c := proxytest.Dial(t, addrs[i%2])
			for range steps {
				if count.Add(1)%everySteps == 0 {
					mu.Lock()
					if random.IntN(2) == 0 {
						direct.Do("CLIENT KILL TYPE normal SKIPME yes")
					} else {
						direct.Do("SCRIPT FLUSH")
					}
					mu.Unlock()
				}
				if !h.step(c, random) {
					c.Close()
					c = proxytest.Dial(t, addrs[i%2])
				}
			}
			c.Close() // what it waits for or makes is another's
		})
	}
	all.Wait()
	t.Logf("%d values given, %d made, %d answers lost", h.values.Load(), h.made.Load(),
		h.lost.Load())
	if h.values.Load() == 0 || h.made.Load() == 0 {
		t.Error("nothing was made or given")
	}
}
