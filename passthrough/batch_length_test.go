package passthrough

import (
	"strconv"
	"testing"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
)

// A batch of scripts is answered by as many replies as it has calls. With fewer, what others have
// asked behind it would answer the last calls; with more, the last replies would answer others.
func TestBatchOfAnotherLength(t *testing.T) {
	const calls = 2
	call := func(i int) *Call { return &Call{SHA: "alone", Name: "n", Keys: []string{strconv.Itoa(i)}} }
	for _, header := range []string{"*1\r\n", "*2\r\n", "*3\r\n", "*0\r\n", "*-1\r\n", "*02\r\n", "*2\n",
		"*\r\n"} {
		said, good := header+":1\r\n:2\r\n+other\r\n", header == "*2\r\n"

		l, clients := newUnpluggedLane(2)
		l.batchScript = batchSHA
		var answers []*Answer
		for i := range calls {
			a := &Answer{Done: make(chan struct{}), call: call(i)}
			e := pendingReply{kind: internal, answer: a}
			if err := l.takes(&clients[0].c, e, ""); err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		l.asks(t, clients[1], 1)
		err := l.Consume([]byte(said), nil)
		if (err == nil) != good {
			t.Errorf("lane, %q: %v", header, err)
		}
		if err != nil {
			l.reportLoss(err)
		}
		other := clients[1].took()
		if good && other != "+other\r\n" || !good && other != "-UPSTREAM lost\r\n" {
			t.Errorf("lane, %q: another client is given %q", header, other)
		}
		for _, a := range answers {
			if raw, err := a.Raw(); (err == nil) != good {
				t.Errorf("lane, %q: a call is answered %q, %v", header, raw, err)
			}
		}

		u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 2})
		u.c.pool.BatchScript = batchSHA
		for i := range calls {
			u.Ask(call(i), nil)
		}
		u.Flush(nil)
		u.Relay(Request{}, nil)
		u.Flush(nil)
		if err := u.feed([]byte(said)); (err == nil) != good {
			t.Errorf("home, %q: %v", header, err)
		}
		if got := u.took(); got != "" && !good {
			t.Errorf("home, %q: the client is given %q", header, got)
		}
	}
}

// A home by which half a push has come, or a whole one that waits for the lane's reply, serves nobody
// else: the rest of it would reach the next client.
func TestHomeWithAPushIsNotGivenOn(t *testing.T) {
	for said, given := range map[string]bool{"": true, ">": false, ">1\r\n+a": false} {
		s := newScripted(t, 1)
		s.lanes.Spares = 1
		far := s.addSpare(t, 0, false)
		c := s.client(t)
		if !c.homes.takeHome() {
			t.Fatal("there is no spare")
		}
		c.c.mu.Lock()
		home := c.c.home
		c.c.route = byLane
		c.c.mu.Unlock()
		far.Write([]byte(said))
		testwait.Until(t, "it has come", func() bool {
			c.c.mu.Lock()
			defer c.c.mu.Unlock()
			return len(home.early) == len(said)
		})
		c.c.mu.Lock()
		if got := c.c.releaseHomeLocked(); got != given {
			t.Errorf("behind %q it is given on: %v", said, got)
		}
		c.c.mu.Unlock()
		c.End(AtOnce)
		c.Wait()
	}
}

// What a replica says can be said by a client's script as well. Where servers can't be told from one
// another all lanes are given up then, but not for each such reply.
func TestReadOnlyIsSaidAgain(t *testing.T) {
	s := newScripted(t, 1)
	l, _ := newUnpluggedLane(1)
	p := s.lanes
	l.key.Identity, l.server.Addr = p.Upstream.Initial, p.Upstream.Addr
	for range 3 {
		l.term = p.currentTerm()
		p.laneReadOnly(l)
	}
	if got := p.currentTerm(); got != 1 {
		t.Errorf("%d terms have ended, of which one was long enough", got)
	}
	p.mu.Lock()
	p.termEnds = 0 // it has lasted
	p.mu.Unlock()
	l.term = p.currentTerm()
	p.laneReadOnly(l)
	if got := p.currentTerm(); got != 2 {
		t.Errorf("%d terms have ended, of which two were long enough", got)
	}
}
