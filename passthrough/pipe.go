// Package passthrough carries requests to the upstream Redis and brings its replies back, byte for byte and in order.
//
// Each client has one upstream connection of its own, its home, opened when the client connects and
// closed when it leaves. Everything that depends on connection state happens there. A request that
// depends on nothing may take the lane instead, a connection shared by all clients with the same login,
// database and protocol, because that is cheaper. A Pipe is one client's way to both:
//
//	session goroutine:  Connect, Relay, Ask  ->  Flush    ->  home, or lane: gathered, one write for many
//	event loop:         TryRelay                          ->  home at once; lanes at the end of the turn,
//	                                                          or before anything goes by a home
//	event loop, or the reader of a lane or a home:
//	                    upstream  ->  cut into replies  ->  ledger  ->  outbox  ->  client
//
// Connect chooses the way, by the request (Way) and by State: the lane serves a client that Redis has
// let in, whose connection is as a new one, while nothing is owed to it by the home, and the other way
// round. There is no lane for a single client of its kind, and none is waited for: until it is open,
// the home serves. So a request is never held up by the opening of a connection but the home's own.
//
// When Redis ends a home, it ends the client too, as directly. A client that has not logged in itself
// goes on with another home if the connection was as a new one, and Redis as a whole was away rather
// than this connection closed alone: see homeEnded.
//
// Neither direction holds a whole message of a home: what is read is passed on. On a lane requests are
// whole. Nobody who gives waits for the client (see outbox). The reader of a home waits, so that the
// upstream keeps what its client leaves unread, but never while the session waits for the upstream. A
// client that leaves much unread on a lane goes on at home. The ledger says what each reply belongs to,
// so that the proxy can answer a request itself in its turn (Local), keep a reply to itself (Call), and
// know the state of the home (State). Nothing is ever sent twice. What is lost with a connection is
// answered as lost.
//
// Memory: for each session what waits to be sent, the replies that its client leaves unread up to
// spoolMemory, and while its home is read by a goroutine a buffer of bufSize at most; a queue of at most
// maxEntries.
//
// This package doesn't know what a lock is, nor a command's name but for those that set a connection up.
package passthrough

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/socket"
)

const (
	minBuf     = 1 << 10
	bufSize    = 64 << 10
	maxEntries = 16 << 10 // of about 100 bytes each; a run of plain requests is one
	// linger is how long the upstream may be silent after the client has closed and all has been sent to it.
	linger = 30 * time.Second
	// maxCall bounds a reply that is kept in memory, bytes.
	maxCall = 64 << 20
)

// ErrClosed is the outcome of a Call on a Pipe that was closed by its own side.
var ErrClosed = errors.New("connection closed")

// Pipe is one session's way to the upstream. Its methods are for the one who reads the client, the session's goroutine or an event loop in its
// place, except Close, Push and State.
type Pipe struct {
	lanes    *Lanes
	client   net.Conn
	encode   func(error) []byte // makes the reply to a request that was lost
	out      *outbox
	wbuf     []byte      // not yet sent
	asked    int         // replies that wbuf will get, if it goes by a lane
	failed   error       // the last connect's failure, until the batch of requests that met it ends
	lane     *lane       // the session's, nil if it uses none
	lastHome *home       // that was opened last, nil if none ever was
	scripts  bool        // the session has run scripts of its client's
	behind   bool        // a request went by another connection than the home that is open
	aloneIn  laneKind    // what alone is about; written before that is set
	alone    atomic.Bool // no other session asks for a lane of that kind

	mu     sync.Mutex
	room   *sync.Cond
	ledger ledger      // guarded by mu
	home   *home       // guarded by mu; nil while it isn't open
	used   bool        // guarded by mu; the home was, since closeIdle looked
	idle   *time.Timer // calls closeIdle; nil if nothing does
	// idledOut says that home isn't open since nothing needed it.
	idledOut bool   // guarded by mu
	onLane   bool   // guarded by mu; what is owed comes by the lane, otherwise by the home
	held     bool   // guarded by mu; the session is about to use the home
	pins     int    // guarded by mu; see Keep
	large    int    // guarded by mu; for how many requests it stays at home because of large ones
	broken   bool   // guarded by mu; a request was begun whose end may never come
	cut      bool   // guarded by mu; the home was lost since Connect: what was to go by it is answered already
	inFlight int    // guarded by mu; replies still to come by lane, or to be taken back
	waitsAt  *lane  // guarded by mu; where the session may be waiting to submit
	lost     error  // guarded by mu; why the session can't go on
	ending   bool   // guarded by mu; close the client once nothing is owed to it
	severed  bool   // guarded by mu; a connection by which earlier requests went was lost, or led elsewhere
	leaving  bool   // guarded by mu; the client has closed: an end of the upstream is no loss
	within   bool   // guarded by mu; the client has been given a part of a reply
	pushes   []byte // guarded by mu; wait for the end of that reply
	abandon  *time.Timer
}

// NewPipe returns a Pipe for client. It opens no connection yet. direct is client's socket, nil if what client is given isn't what that
// must be. encode makes the error reply for a request that was lost with a connection.
func NewPipe(lanes *Lanes, client net.Conn, direct *socket.Socket, encode func(error) []byte) *Pipe {
	p := &Pipe{lanes: lanes, client: client, encode: encode, out: newOutbox(client, direct)}
	p.out.queue.all = &lanes.unread
	p.room = sync.NewCond(&p.mu)
	p.ledger.State = newState(lanes.upstream.Initial)
	return p
}

// Way is how a request may go.
type Way uint8

const (
	Own     Way = iota // by the session's home
	Shared             // by a lane
	Scripts            // likewise, but it may take so long that those who run no scripts must not stand behind it
)

// Connect makes sure that there is a way for the next request, within timeout. connects says that a connection had to be opened, or
// that this failed. The error is an *Error with Sent false, or a *Refused; within one batch of requests it is remembered, so that
// each of them doesn't wait for the same dead address.
func (p *Pipe) Connect(ctx context.Context, timeout time.Duration, way Way) (connects bool, err error) {
	p.mu.Lock()
	if p.lost != nil {
		defer p.mu.Unlock()
		return false, p.neverSent()
	}
	if p.lanes.perIdentity > 0 && p.out.backlogged() {
		p.large = largeFor
	}
	shares := way != Own && p.mayShareLocked()
	kind := laneKind{p.ledger.Identity, p.scripts || way == Scripts}
	lost := p.home == nil && !p.idledOut
	p.mu.Unlock()
	p.scripts = kind.Scripts
	// A home that was lost is dialled again also for what could go by a lane: the client may need it next.
	if !lost && shares && p.useLane(kind) {
		return false, nil
	}
	p.useHome() // what sets a new home up goes by it too
	if p.atHome() {
		return false, nil
	}
	if p.failed != nil {
		return false, p.failed
	}
	p.failed = p.openHome(ctx, timeout)
	return true, p.failed
}

// atHome makes ready for a request that goes by the home, and reports whether that is open. If it was
// lost since Connect, what was to go by it has been answered, and is dropped.
func (p *Pipe) atHome() (open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
	if p.cut {
		p.wbuf, p.cut = keepBuffer(p.wbuf), false
	}
	return p.home != nil
}

// mayShareLocked reports whether a request that depends on nothing may go by a lane now. mu is held.
func (p *Pipe) mayShareLocked() bool {
	return p.lanes.maySessionsShare() && (p.onLane || p.ledger.empty()) &&
		p.large == 0 && p.pins == 0 && !p.broken && p.lost == nil && (p.onLane || !p.within) && p.ledger.Shareable()
}

// Behind reports whether requests went by other connections than the home since this was last asked.
func (p *Pipe) Behind() (behind bool) {
	behind, p.behind = p.behind, false
	return behind
}

// Severed reports whether the session's earlier requests went by a connection that was lost since, or to another server than the one
// that it is connected to now: what it wrote there may be unknown here.
func (p *Pipe) Severed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.severed
}

// OnLane reports whether the last request that Connect was called for goes by a connection that others use too.
func (p *Pipe) OnLane() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.onLane
}

// Keep says whether the session stays at its home though its replies don't tell why.
func (p *Pipe) Keep(keep bool) {
	p.mu.Lock()
	p.pins = 0
	if keep {
		p.pins = 1
	}
	p.mu.Unlock()
}

// Mark says that a request may have left something on the home that isn't followed here.
func (p *Pipe) Mark() {
	p.mu.Lock()
	p.ledger.stays = true
	p.mu.Unlock()
}

// push notes what the client is owed, and waits while that is too much.
func (p *Pipe) push(e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for (p.ledger.len() >= maxEntries || p.onLane && p.inFlight >= maxInFlight) && p.lost == nil {
		p.mu.Unlock()
		p.send()
		p.mu.Lock()
		if p.ledger.len() >= maxEntries || p.onLane && p.inFlight >= maxInFlight {
			p.out.hurry(1)
			p.room.Wait()
			p.out.hurry(-1)
		}
	}
	p.ledger.push(e)
	p.ending = p.ending || e.Effect == Quit
	switch {
	case p.lost != nil:
		p.settleLost()
	case p.cut && e.Effect != NoEffect: // what comes behind it may mean something else without it
		p.lost = p.neverSent()
		text, awaited := p.settleLost()
		p.ending = p.ending || !awaited
		p.giveLocked(text)
	case p.cut:
		p.giveLocked(p.settle(nil, math.MaxInt, p.neverSent()))
	case p.onLane:
		p.inFlight += max(1, e.count)
		p.asked += max(1, e.count)
	case p.large > 0:
		p.large = max(0, p.large-max(1, e.count))
	}
}

// queue takes n whole requests, or none but a piece of one.
func (p *Pipe) queue(raw []byte, n int) {
	if len(raw) >= newBuffer {
		p.queueLarge(raw, n)
		return
	}
	if p.wbuf == nil {
		p.wbuf = takeBuffer()
	}
	p.wbuf = append(p.wbuf, raw...)
	if len(p.wbuf) >= bufSize {
		p.send()
	}
}

// queueLarge sends what isn't worth gathering, behind what has been. It isn't copied first.
func (p *Pipe) queueLarge(raw []byte, n int) {
	if len(raw) > bufSize {
		p.mu.Lock()
		p.large = largeFor
		p.mu.Unlock()
	}
	last := min(n, p.asked) // raw's own replies
	p.asked -= last
	p.send()
	p.asked = last
	p.give(raw)
}

// Flush sends what is queued. Before the next request the session must Connect.
func (p *Pipe) Flush() {
	p.failed = nil
	p.send()
	p.mu.Lock()
	p.held = false
	p.mu.Unlock()
}

// send sends what is queued, in the midst of what Connect was called for.
func (p *Pipe) send() {
	if len(p.wbuf) > 0 {
		p.give(p.wbuf)
		p.wbuf = keepBuffer(p.wbuf)
	}
}

// give sends raw, which will get the replies that are asked for.
func (p *Pipe) give(raw []byte) {
	p.mu.Lock()
	home, gone, onLane := p.home, p.lost != nil || p.cut, p.onLane
	p.mu.Unlock()
	switch {
	case gone:
		p.asked = 0
	case onLane:
		p.submit(raw)
	case home != nil:
		p.out.hurry(1) // it may take no more before what it says has been read
		_, err := home.way.Write(raw)
		p.out.hurry(-1)
		if err != nil {
			home.close() // the reader reports the loss
		}
	}
}

// State returns the state of the connection as of the replies that have come; settled says that no reply which may change
// it is still to come.
func (p *Pipe) State() (s State, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.State, p.ledger.effects == 0
}
