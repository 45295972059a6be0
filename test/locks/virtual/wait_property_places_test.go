//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"lockproxy/internal/test/proxytest"
)

// livePlaced is one connection of a client that cannot wait. It asks for a lock by a place in its
// line, again and again, until it has the lock or asks no more. Sometimes it asks too late.
func (w *waitsWorld) livePlaced(client int, random *rand.Rand) {
	nc, err := proxytest.TryDial(w.proxies[random.IntN(2)].Addr)
	if err != nil {
		w.t.Errorf("client %d cannot connect: %v", client, err)
		return
	}
	c := proxytest.Dialed(w.t, nc)
	defer c.Close()
	key := string(rune('a' + random.IntN(3)))
	keep := time.Duration(500+random.IntN(2500)) * time.Millisecond
	r := request{keys: []string{key},
		words: fmt.Sprintf("LOCK %s %d PLACE %.3f", key, waitsLease/time.Second, keep.Seconds())}
	if random.IntN(3) == 0 {
		r.words += fmt.Sprintf(" OWNER o%d NOTE why", client)
	}
	w.begin(&r)
	got := "$-1\r\n"
	for n := 1 + random.IntN(20); n > 0 && strings.HasPrefix(got, "$-1"); n-- {
		w.keeps(key, keep)
		c.Send(r.words)
		if got, err = c.TryReply(); err != nil {
			got = ""
		}
		w.keeps(key, keep) // a place is kept from when Redis has refused the lock
		w.note(c, "%s: %.40q, %v", r.words, got, err)
		if strings.HasPrefix(got, "$-1") {
			time.Sleep(time.Duration(random.Int64N(int64(keep * 11 / 10))))
		}
	}
	if !strings.HasPrefix(got, ":") {
		w.answered(&r, got)
		return
	}
	token := proxytest.Token(w.t, got)
	w.took(client, c.LocalAddr().String(), r, token)
	w.answered(&r, got)
	w.hold(r.keys, token, random.IntN(300))
}

// keeps notes that a client asks for its place.
func (w *waitsWorld) keeps(key string, keep time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key].placed = later(w.keys[key].placed, time.Now().Add(keep))
}
