package eventloop

import (
	"sync/atomic"
	"syscall"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
)

// Next says what a Registration does after its Handler was called.
type Next uint8

const (
	Stay  Next = iota // nothing is left to read: call Ready when more arrives
	Again             // there can be more: call Ready again soon
	Leave             // call Resume, which must read until a read fills less than its buffer
)

// Handler handles what arrives on one connection.
type Handler interface {
	// Ready is called when something may have arrived, or if arrived is false only after Notify. It
	// must not wait. It never runs twice at the same time, nor while Resume runs.
	Ready(it *Iteration, arrived bool) Next
	// Resume reads the connection, and can wait. It runs in a new goroutine, once for each Park
	// that returned true.
	Resume()
}

// reader says who reads a connection.
type reader = int32

const (
	byGoroutine reader = iota
	parked             // nobody, until something arrives
	byLoop             // or Park or Notify in place of the loop
)

// Events of which a Handler does not know yet.
const (
	arrival uint32 = 1 << iota
	notice         // see Notify
)

// Registration is one connection's place in a loop. Make it with Loops.NewRegistration. All its
// methods do nothing on nil.
type Registration struct {
	loops   *Loops
	handler Handler // nil: see NewRegistration
	conn    syscall.RawConn

	reader  atomic.Int32
	pending atomic.Uint32 // arrival and notice
	woken   atomic.Bool
	closed  atomic.Int64 // when the loop learnt that the peer has closed, by monotonic.Now; or 0

	slotRef
	tried bool // the kernel was asked to watch conn
}

// NewRegistration returns a Registration of conn, for handler. The kernel watches conn from the
// first Park on. If conn is nil the Handler learns of everything by Notify. If handler is nil a
// goroutine always reads conn: Park returns false, and from Register on the loop learns only when
// the peer has closed, for ClosedFor.
func (ls *Loops) NewRegistration(handler Handler, conn syscall.RawConn) *Registration {
	if ls == nil {
		return nil
	}
	return &Registration{loops: ls, handler: handler, conn: conn}
}

// Register makes the kernel watch conn from now on; otherwise the first Park does. A goroutine that
// does something else before it parks calls it first. Then the loop learns in order of what arrives
// meanwhile, and Park handles it at once.
func (r *Registration) Register() {
	if r != nil && r.conn != nil && !r.tried {
		r.tried = true
		r.register()
	}
}

// Unseen makes the next Park call the Handler as if something had arrived: something can have that
// the kernel does not tell of, since it has been read already, as TLS does.
func (r *Registration) Unseen() {
	if r != nil {
		r.pending.Or(arrival)
	}
}

// Park leaves the reading to the loop. The last read must have filled less than its buffer. If Park
// returns true the goroutine must end and touch nothing: Resume may run already. If it returns
// false the goroutine reads on: something has arrived that the Handler leaves to it, the peer has
// closed, Wake was called, or the kernel can't watch conn.
func (r *Registration) Park() bool {
	if r == nil || r.handler == nil || r.woken.Load() {
		return false
	}
	r.Register()
	if r.conn != nil && !r.registered() {
		return false
	}
	return r.park(nil)
}

// park is Park once the kernel watches conn. it is nil outside an Iteration.
func (r *Registration) park(it *Iteration) bool {
	for {
		r.reader.Store(parked)
		if r.woken.Load() && r.reader.CompareAndSwap(parked, byGoroutine) {
			return false
		}
		if r.pending.Load() == 0 || !r.reader.CompareAndSwap(parked, byLoop) {
			return true
		}
		if r.handlePending(it) != Stay { // a goroutine goes on: others of the loop wait
			r.reader.Store(byGoroutine)
			return false
		}
	}
}

// handlePending calls the Handler for what has happened while nobody was reading.
func (r *Registration) handlePending(it *Iteration) Next {
	if it == nil {
		it = &Iteration{}
		defer it.Flush()
	}
	if news := r.pending.Swap(0); news != 0 {
		defer loopguard.Enter(&it.me)()
		return r.handler.Ready(it, news&arrival != 0)
	}
	return Stay
}

// Notify calls the Handler for something other than an arrival: now or, if somebody reads the
// connection, when it parks again. it is nil outside an Iteration: then a connection that is parked
// gets its Resume, since the caller can be one that must not wait.
func (r *Registration) Notify(it *Iteration) {
	if r == nil {
		return
	}
	r.pending.Or(notice)
	switch {
	case it != nil && r.reader.CompareAndSwap(parked, byLoop):
		next := r.handlePending(it)
		if next == Again {
			next = Leave // it can be another loop's
		}
		r.handled(next, it)
	case it == nil && r.reader.CompareAndSwap(parked, byGoroutine):
		go r.handler.Resume() // its owner's; it ends or parks again
	}
}

// Post is Notify for any goroutine: a loop calls the Handler soon. The caller may hold mutexes that
// the Handler locks. A loop that is in an iteration calls the Handler at its end.
func (r *Registration) Post() {
	if r == nil || r.pending.Or(notice)&notice != 0 {
		return // the caller that has noted it, or the reader, has it handled
	}
	if r.reader.Load() == parked {
		r.loops.post(r)
	}
}

// onPost is called by the loop for what is pending.
func (r *Registration) onPost(it *Iteration) (again bool) {
	if !r.reader.CompareAndSwap(parked, byLoop) {
		return false // the reader looks at pending before it parks
	}
	// It is empty if a goroutine has run meanwhile, and parked again.
	return r.handled(r.handlePending(it), it)
}

// Wake calls Resume if the connection is parked, and makes every later Park fail. It can be called
// from any goroutine. A caller that closes the connection must call Wake after that:
// the kernel does not tell the loop of a close on this side.
func (r *Registration) Wake() {
	if r == nil {
		return
	}
	r.woken.Store(true)
	if r.reader.CompareAndSwap(parked, byGoroutine) {
		go r.handler.Resume() // its owner's; it ends or parks again
	}
}

// ClosedFor is how long ago the loop learnt that the peer has closed; 0 if it did not. A goroutine
// can be reading meanwhile.
func (r *Registration) ClosedFor() time.Duration {
	if r == nil || r.closed.Load() == 0 {
		return 0
	}
	return monotonic.Since(r.closed.Load())
}

// onEvent is called by the loop when something has arrived. It reports whether the Handler wants to
// be called again.
func (r *Registration) onEvent(it *Iteration) (again bool) {
	r.pending.Or(arrival)
	return r.onPost(it)
}

// onAgain calls a Handler that asked for it with Again.
func (r *Registration) onAgain(it *Iteration) (again bool) {
	r.pending.Or(arrival)
	return r.handled(r.handlePending(it), it)
}

// handled does what the Handler has asked for. again says that the loop must call onAgain: it stays
// the reader only if the Handler wants that and Wake was not called.
func (r *Registration) handled(next Next, it *Iteration) (again bool) {
	switch {
	case next == Again && !r.woken.Load():
		return true
	case next == Leave:
		r.reader.Store(byGoroutine)
		go r.handler.Resume() // its owner's; it ends or parks again
	case !r.park(it):
		go r.handler.Resume()
	}
	return false
}
