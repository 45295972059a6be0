package passthrough

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
)

// onLane returns a Pipe whose requests go by l. Nothing reads its client.
func onLane(l *lane) *Pipe {
	p := NewPipe(newPool(&upstream.Upstream{}, 1), nil, nil, nil)
	p.lanes.lane, p.c.route = l, byLane
	return p
}

// takes is add with the client's mu held.
func (l *lane) takes(c *client, e pendingReply, raw string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.add(c, e, []byte(raw), false)
}

// adds is addLocked with the client's mu held.
func (s *laneSide) adds(e pendingReply, raw string, it *eventloop.Iteration) bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.addLocked(e, []byte(raw), it)
}

// A goroutine that finds another one writing leaves its requests to that one, which sends them too.
// Neither waits for an upstream that takes nothing.
func TestOneWriterSendsAll(t *testing.T) {
	for _, direct := range []bool{true, false} {
		near, far := tcpPair(t)
		near.SetWriteBuffer(4 << 10)
		far.SetReadBuffer(4 << 10)
		l := newLane(poolKey{}, near, &Pool{})
		if !direct {
			l = newLane(poolKey{}, struct{ net.Conn }{near}, &Pool{})
		}
		if l.writesAtOnce() != direct {
			t.Fatal("the lane writes otherwise than the test wants")
		}
		p, q := onLane(l), onLane(l)
		const size = 1 << 10
		sent := 0
		add := func(p *Pipe, c string) {
			t.Helper()
			if err := l.takes(&p.c, pendingReply{}, strings.Repeat(c, size)); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		writing := func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.out.writing
		}
		for i := 0; !writing(); i++ {
			if add(p, "p"); i%2 == 0 { // what isn't flushed goes with what is
				l.Flush()
			}
		}
		for range 10 {
			add(q, "q")
			l.Flush()
		}
		far.SetReadDeadline(testwait.Deadline())
		got := make([]byte, sent*size)
		if _, err := io.ReadFull(far, got); err != nil {
			t.Fatal(err)
		}
		if want := strings.Repeat("p", (sent-10)*size) +
			strings.Repeat("q", 10*size); string(got) != want {
			t.Error("requests came in another order than they were added")
		}
		testwait.Until(t, "nobody writes, since nothing is left", func() bool { return !writing() })
		near.Close()
		l.writers.Wait()
	}
}

// What an iteration of one loop has added is sent at its end, though the iteration of another loop
// has added something too: a home write that follows must not overtake it.
func TestEachIterationFlushes(t *testing.T) {
	near, far := tcpPair(t)
	l := newLane(poolKey{}, near, &Pool{})
	l.Reg = (&eventloop.Loops{}).NewRegistration(l, nil)
	p, q := onLane(l), onLane(l)
	one, other := &eventloop.Iteration{}, &eventloop.Iteration{}
	if !p.lanes.adds(pendingReply{}, "PING\r\n", one) ||
		!q.lanes.adds(pendingReply{}, "ECHO\r\n", other) {
		t.Fatal("the lane takes nothing")
	}
	other.Flush()
	far.SetReadDeadline(testwait.Deadline())
	got := make([]byte, 12)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "PING\r\nECHO\r\n" {
		t.Fatalf("%q, %v", got, err)
	}
	one.Flush()
}

// As many calls as go together are sent while the iteration still gathers others, so that Redis
// begins.
func TestFullBatchIsSentAtOnce(t *testing.T) {
	near, far := tcpPair(t)
	l := newLane(poolKey{}, near, &Pool{Config: Config{BatchScript: batchSHA}})
	l.Reg = (&eventloop.Loops{}).NewRegistration(l, nil)
	p, it := onLane(l), &eventloop.Iteration{}
	for i := range maxCalls + 1 {
		e := pendingReply{kind: internal, answer: &Answer{
			call: &Call{SHA: "alone", Name: "n", Keys: []string{fmt.Sprint("k", i)}}}}
		if !p.lanes.adds(e, "", it) {
			t.Fatal("the lane takes nothing")
		}
	}
	l.mu.Lock()
	waiting := len(l.out.calls.list)
	l.mu.Unlock()
	if waiting != 1 {
		t.Errorf("%d calls wait for the end of the iteration, not 1", waiting)
	}
	far.SetReadDeadline(testwait.Deadline())
	got := make([]byte, 64<<10)
	n, err := far.Read(got)
	if want := fmt.Sprintf("EVALSHA\r\n$%d\r\n%s\r\n$2\r\n%d", len(batchSHA), batchSHA,
		maxCalls); err != nil || !strings.Contains(string(got[:n]), want) {
		t.Errorf("%.100q, %v, want %q in it", got[:n], err, want)
	}
	it.Flush()
}

// A request of a session that is closed, and whose lane has ended, is left to the session, which
// answers it as lost.
func TestLaneThatEndsWithItsSession(t *testing.T) {
	near, _ := tcpPair(t)
	l := newLane(poolKey{}, near, &Pool{})
	p := onLane(l)
	l.reportLoss(io.EOF)
	close(l.ended)
	p.c.mu.Lock()
	p.c.loseUpstream(ErrClosed)
	p.c.mu.Unlock()
	if p.lanes.adds(pendingReply{kind: internal, answer: &Answer{Done: make(chan struct{})}},
		"PING\r\n", nil) {
		t.Error("the lane has taken a request that nobody will answer")
	}
}

// A route changes only with nothing in flight on it, and gone is for good.
func TestSetRoute(t *testing.T) {
	const busy = 1
	for _, c := range []struct {
		from, to route
		inFlight int
		within   bool
		want     route
	}{
		{byHome, byLane, 0, false, byLane},
		{byHome, byLane, 0, true, byHome}, // the home has given a part of a push
		{byHome, dropped, 0, false, dropped},
		{byLane, byHome, 0, false, byHome},
		{byLane, byHome, busy, false, byLane},
		{byLane, dropped, 0, false, byLane}, // the home is not what is in use
		{byLane, gone, busy, false, gone},
		{dropped, byHome, 0, false, byHome},
		{dropped, byLane, 0, false, dropped},
		{dropped, gone, 0, false, gone},
		{gone, byHome, 0, false, gone},
		{gone, byLane, 0, false, gone},
	} {
		o := &client{route: c.from, inFlight: c.inFlight, within: c.within}
		if changed := o.setRoute(c.to); o.route != c.want || changed != (c.to == c.want) {
			t.Errorf("from %d to %d with %d in flight, within %v: %v, and now %d", c.from, c.to,
				c.inFlight, c.within, changed, o.route)
		}
	}
	o := &client{}
	o.pending.push(pendingReply{})
	if o.setRoute(byLane) {
		t.Error("a reply that is to come by the home would come behind what comes by the lane")
	}
}
