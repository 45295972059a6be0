// Package eventloop waits for many sockets at once and has what comes there dealt with in place,
// without a goroutine for each.
//
// A goroutine that reads a connection takes a Seat for it. When it has nothing to do it calls Park and
// ends: from then on the loop tells the Seat's Handler whenever something has come, until the Handler
// finds what it cannot deal with without waiting, or Rouse is called. Then Resume runs in a goroutine
// by itself, which reads the connection until it calls Park again. So a connection always has one
// reader, code that may wait has a goroutine, and a connection where nothing happens has none.
//
// What that saves, for each request of a client: waking a goroutine, and the read by which a goroutine
// finds out that there is no more. The loop is told once of what has come (epoll, edge-triggered), and
// also whether the peer has closed, so a read that has found less than there was room for was the last
// one. (That is so of TCP, but for urgent data: a connection that is sent such is read by a goroutine
// from then on. It is not so of a Unix socket over which files are passed.)
//
// Only on Linux; anywhere else there are no loops, and all methods can be called on the nil *Loops and
// *Seat that stand for that.
package eventloop

import (
	"slices"
	"sync/atomic"
	"syscall"
)

// Next is what becomes of a Seat whose Handler has been told that something has come.
type Next uint8

const (
	Stay  Next = iota // nothing is left to read; tell the Handler when more comes
	Again             // tell it again soon: there may be more
	Leave             // Resume must read until it has found less than it had room for
)

// Handler deals with what comes for one Seat. It must not wait for anything.
type Handler interface {
	// Ready is called when something may have come. It is never called by two goroutines at once, nor
	// next to the goroutine that reads.
	Ready(turn *Turn) Next
	// Resume is called in a goroutine by itself, once for each Park that was true, when the goroutine is
	// wanted. It may wait.
	Resume()
}

// Later is something that is worth doing once for many Seats, such as to send what their Handlers have gathered.
type Later interface{ EndTurn() }

// Turn is one round of the loop, in which the Handlers of all Seats for which something has come are called.
type Turn struct {
	later []Later
	buf   []byte
}

// Later has x told when the turn ends, once.
func (t *Turn) Later(x Later) {
	if !slices.Contains(t.later, x) {
		t.later = append(t.later, x)
	}
}

// Buffer is size bytes of room until the Handler returns.
func (t *Turn) Buffer(size int) []byte {
	if len(t.buf) < size {
		t.buf = make([]byte, size)
	}
	return t.buf[:size]
}

// Flush has those told now that are to be told when the turn ends.
func (t *Turn) Flush() {
	for i, x := range t.later {
		x.EndTurn()
		t.later[i] = nil
	}
	t.later = t.later[:0]
}

// The states of a Seat: who reads.
const (
	away    int32 = iota // the goroutine
	waiting              // nobody: the loop is to begin when something comes
	served               // the loop, or Park in its place
)

// Seat is one connection's place in a loop. Make it with Loops.NewSeat.
type Seat struct {
	loops   *Loops
	handler Handler

	state  atomic.Int32
	missed atomic.Bool // something has come that the Handler has not been told
	roused atomic.Bool

	entry // where the loop finds it
	tried bool
}

// NewSeat returns a Seat whose handler is told of what comes. Nothing is watched before the first Park.
func (ls *Loops) NewSeat(handler Handler) *Seat {
	if ls == nil {
		return nil
	}
	return &Seat{loops: ls, handler: handler}
}

// Enter makes ready to Park for what comes by conn, and reports whether one can. It must be called
// before each Park, by the goroutine that does, and costs little but for the first time.
func (s *Seat) Enter(conn syscall.RawConn) bool {
	if s == nil || s.roused.Load() {
		return false
	}
	if !s.tried {
		s.tried = true
		s.enter(conn)
	}
	return s.entered()
}

// Park leaves the reading to the loop until a goroutine is wanted. The last read before must have found
// less than it had room for, or there been none. If it returns true the goroutine must end and touch
// nothing: Resume may run already. Otherwise it is wanted at once and reads on. Once the peer has
// closed, Enter is false: the goroutine must read to the end.
func (s *Seat) Park() (parked bool) {
	for {
		s.state.Store(waiting)
		if s.roused.Load() && s.state.CompareAndSwap(waiting, away) {
			return false
		}
		if !s.missed.Load() || !s.state.CompareAndSwap(waiting, served) {
			return true
		}
		if s.catchUp() == Leave {
			s.state.Store(away)
			return false
		}
	}
}

// catchUp tells the Handler of what has come while nobody waited.
func (s *Seat) catchUp() Next {
	s.missed.Store(false)
	turn := &Turn{}
	next := s.handler.Ready(turn)
	turn.Flush()
	if next == Again {
		s.missed.Store(true)
	}
	return next
}

// Rouse asks for the goroutine, now and for good. It may be called from any goroutine. A caller that
// closes the connection must call it after that: of a connection that is closed here the loop hears
// nothing.
func (s *Seat) Rouse() {
	if s == nil {
		return
	}
	s.roused.Store(true)
	if s.state.CompareAndSwap(waiting, away) {
		go s.handler.Resume() // its owner's; it ends or parks again
	}
}

// come is called by the loop when something has come. It reports whether the Handler wants to be told again.
func (s *Seat) come(turn *Turn) (again bool) {
	s.missed.Store(true)
	if !s.state.CompareAndSwap(waiting, served) {
		return false // Park looks at missed
	}
	if !s.missed.Swap(false) { // the goroutine has been here, and waits anew
		return s.finish(Stay)
	}
	return s.finish(s.handler.Ready(turn))
}

// goOn calls the Handler once more, which wants it.
func (s *Seat) goOn(turn *Turn) (again bool) {
	s.missed.Store(false)
	return s.finish(s.handler.Ready(turn))
}

// finish gives up the place of the reader, unless the Handler wants to go on with that and nobody wants the goroutine.
func (s *Seat) finish(next Next) (again bool) {
	switch {
	case next == Leave:
		s.state.Store(away)
		go s.handler.Resume() // its owner's; it ends or parks again
		return false
	case next == Again && !s.roused.Load():
		return true
	}
	if next == Again {
		s.missed.Store(true)
	}
	s.state.Store(waiting)
	if s.roused.Load() && s.state.CompareAndSwap(waiting, away) {
		go s.handler.Resume()
	}
	return false
}
