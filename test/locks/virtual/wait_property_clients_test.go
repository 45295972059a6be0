//go:build !race

package virtual_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/wire"
)

// The clients of TestPropertyOfWaiting.

// request is one of a client's, and how its reply begins, one of several ways.
type request struct {
	words string
	wants []string
	keys  []string // it waits for these locks
	begun bool     // its wait has
}

func echo(random *rand.Rand) request {
	n := strconv.Itoa(random.IntN(1e9))
	return request{words: "ECHO " + n, wants: []string{fmt.Sprintf("$%d\r\n%s\r\n", len(n), n)}}
}

func blocks(random *rand.Rand) request {
	return request{words: fmt.Sprintf("BLPOP none %.1f", 0.1+2*random.Float64()),
		wants: []string{"*-1\r\n"}}
}

// live is one connection of a client: something, a wait, something else, and an end.
func (w *waitsWorld) live(client int, random *rand.Rand) {
	p := w.proxies[random.IntN(2)]
	nc, err := proxytest.TryDial(p.Addr)
	if err != nil {
		w.t.Errorf("client %d cannot connect: %v", client, err)
		return
	}
	c := proxytest.Dialed(w.t, nc)
	defer c.Close()
	var requests []request
	some := func() {
		for range random.IntN(4) {
			if random.IntN(4) == 0 {
				requests = append(requests, blocks(random))
			} else {
				requests = append(requests, echo(random))
			}
		}
	}
	some()
	requests = append(requests, w.wait(client, random))
	some()
	if random.IntN(4) == 0 {
		requests = append(requests, w.wait(client, random))
		some()
	}
	for _, r := range requests {
		w.note(c, "sends %s", r.words)
	}
	var raw []byte
	for _, r := range requests {
		raw = wire.Append(raw, strings.Fields(r.words)...)
	}
	sent := raw
	// In pieces, which come at different times.
	for len(raw) > 0 {
		n := 1 + random.IntN(len(raw))
		if random.IntN(2) == 0 {
			n = len(raw)
		}
		if _, err := c.Write(raw[:n]); err != nil {
			break
		}
		if raw = raw[n:]; len(raw) > 0 {
			time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		}
	}
	leaves, session := time.Time{}, strings.Contains(string(sent), "SESSION")
	switch random.IntN(5) {
	case 0: // it hangs up in the middle
		leaves = time.Now().Add(time.Duration(random.IntN(500)) * time.Millisecond)
	case 1: // it reads late, unless it would have to learn the end of its session
		if !session {
			late := time.Duration(random.IntN(2000)) * time.Millisecond
			w.note(c, "reads in %v", late)
			time.Sleep(late)
		}
	case 2:
		if !session { // it would end it
			w.note(c, "closes its side")
			c.CloseWrite()
		}
	}
	w.read(client, c, requests, leaves, random)
}

// wait is a lock command that waits for one lock or two.
func (w *waitsWorld) wait(client int, random *rand.Rand) request {
	key := string(rune('a' + random.IntN(3)))
	patience := []string{"0.05", "0.5", "3", "20"}[random.IntN(4)]
	keys, words := []string{key}, fmt.Sprintf("LOCK %s %d", key, waitsLease/time.Second)
	switch random.IntN(4) {
	case 0:
		keys = []string{"a", "c"}
		words = fmt.Sprintf("LOCKALL %d 2 c a", waitsLease/time.Second)
	case 1:
		words += fmt.Sprintf(" OWNER o%d", client)
	}
	words += " WAIT " + patience
	if random.IntN(4) == 0 {
		words += " SESSION"
	}
	return request{words: words, keys: keys,
		wants: []string{":", "$-1\r\n", "-UPSTREAM ", "-DEADLOCK ", "-TRYAGAIN "}}
}

// begin notes that a request's wait has begun, since all before it is answered.
func (w *waitsWorld) begin(r *request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.begun = true
	if len(r.keys) > 1 {
		w.alls.n++
	}
	for _, key := range r.keys {
		k := w.keys[key]
		if k.waiting++; k.waiting == 1 && k.holder == 0 {
			k.freed = time.Now()
		}
	}
}

// read reads the replies until leaves, if that is not zero, and ends what the client has been given.
func (w *waitsWorld) read(
	client int, c *proxytest.Conn, requests []request, leaves time.Time, random *rand.Rand,
) {
	i := 0
	if !leaves.IsZero() {
		defer time.AfterFunc(time.Until(leaves), func() {
			w.note(c, "it hangs up")
			w.sessionEnds(client)
			w.end(func(s heldSpan) bool { // a reset may mean that it was not read
				return s.client == client && time.Since(s.from) <= 100*time.Millisecond
			})
			c.Conn.(*virtualnet.Conn).SetLinger(0) // so the proxy knows what it has not read
			c.Conn.Close()
		}).Stop()
	}
	var given sync.WaitGroup
	for ; i < len(requests); i++ {
		r := &requests[i]
		w.begin(r)
		got, err := c.TryReply()
		w.note(c, "%s: %.40q, %v", r.words, got, err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			w.mu.Lock()
			w.t.Errorf("client %d: %s: no reply\n%s", client, r.words,
				strings.Join(w.log[c.LocalAddr().String()], "\n"))
			w.mu.Unlock()
		}
		if err != nil {
			break
		}
		if got == "-UPSTREAM" || strings.HasPrefix(got, "-UPSTREAM ") {
			// any request may meet it
		} else if !slices.ContainsFunc(r.wants, func(want string) bool {
			return strings.HasPrefix(got, want)
		}) {
			w.mu.Lock()
			w.t.Errorf("client %d: %s: %q\n%s", client, r.words, got,
				strings.Join(w.log[c.LocalAddr().String()], "\n"))
			w.mu.Unlock()
		}
		if len(r.keys) > 0 && got[0] == ':' {
			token := proxytest.Token(w.t, got)
			w.took(client, c.LocalAddr().String(), *r, token)
			given.Go(func() { w.hold(r.keys, token, random.IntN(300)) })
		}
		w.answered(r, got)
	}
	if i < len(requests) {
		w.sessionEnds(client)
	}
	if i < len(requests) { // what it may have been given is not known
		for _, r := range requests[i:] {
			w.answered(&r, "")
		}
	}
	ended := make(chan struct{})
	go func() { // a session's holder must learn of its end; it ends with the connection
		defer close(ended)
		c.TryReply()
		w.sessionEnds(client)
	}()
	given.Wait()
	c.Close()
	<-ended
}

// hold has the lock for a time and releases it, by other connections, until one has answered.
func (w *waitsWorld) hold(keys []string, token int64, ms int) {
	time.Sleep(time.Duration(ms) * time.Millisecond)
	for _, key := range keys {
		w.end(func(s heldSpan) bool { return s.token == token })
		for tries := 0; ; tries++ {
			got := ""
			if nc, err := proxytest.TryDial(w.proxies[tries%2].Addr); err == nil {
				c := proxytest.Dialed(w.t, nc)
				c.Write(wire.Append(nil, strings.Fields(proxytest.Unlock(key, token))...))
				got, _ = c.TryReply()
				c.Close()
			}
			if strings.HasPrefix(got, ":") {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		w.mu.Lock()
		if k := w.keys[key]; k.holder == token {
			if k.holder = 0; k.waiting > 0 {
				k.freed = time.Now()
			}
		}
		w.mu.Unlock()
	}
}
