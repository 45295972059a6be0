// Package passthrough carries requests to the upstream Redis and brings its replies back, byte for byte and in order.
//
// A Pipe is one client's way to the upstream. Its requests go by one of two:
//
//	a lane, which the sessions of one user, database and protocol share:
//
//	  session goroutines:  Relay, Call  ->  Flush  ->  lane: gather, one write for many  ->  upstream
//	  an event loop:       TryRelayRun  ->  lane: gather, one write at the end of the turn  ->  upstream
//	  an event loop, or
//	  the lane's reader:   upstream  ->  cut into replies, each to its Pipe  ->  ledger  ->  outbox  ->  client
//
//	a connection of its own, while the session's state or a request needs one:
//
//	  session goroutine:   Relay, Call  ->  Flush  ->  upstream
//	  its reader:          upstream  ->  cut into replies, ledger  ->  outbox  ->  client
//
// The session says with Connect whether a request may share. Its own connection is given up by the reader, once all that was asked
// has been answered and the replies have left the connection as a new one would be. Until a session has been answered by the upstream
// as one that may talk to it, it has a connection of its own: who hasn't logged in where that is demanded never gets further.
//
// Both directions run at once and neither holds a whole message on a connection of its own: what is read is passed on. On a lane
// requests are whole, and nobody waits for a client that doesn't read: see outbox. On a connection of its own the reader waits for the
// client, so that the upstream keeps what it doesn't read, but never while the session waits for the upstream: the session always
// reads on, however much the client leaves unread. The ledger says what each reply belongs to, so that
// the proxy can answer a request itself in its turn (Local), keep a reply to itself (Call), and know the state of the connection
// (State). Nothing is ever sent twice. What is lost with a connection is answered as lost; a client whose own connection that
// was is disconnected, since its state went with it.
//
// Memory: for each session what waits to be sent, the replies that its client leaves unread up to spoolMemory, and on a connection of
// its own a read buffer of bufSize at most; a queue of at most maxEntries.
//
// This package doesn't know what a lock is, nor a command's name but for those that set a connection up.
package passthrough

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
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
	lanes   *Lanes
	client  net.Conn
	encode  func(error) []byte // makes the reply to a request that was lost
	out     *outbox
	wbuf    []byte // not yet sent
	asked   int    // replies that wbuf will get, if it goes by a lane
	failed  error  // the last connect's failure, until the batch of requests that met it ends
	lane    *lane  // the session's, nil if it uses none
	group   *group // guarded by Lanes.mu; whom it has been let in as, nil if it hasn't
	rides   bool   // requests go by the lane: there is no connection of its own
	scripts bool   // the session has run scripts of its client's
	isNew   bool   // the connection of its own is another than the last request's
	braced  bool   // see Brace
	// watch watches the client while the session waits in line for a connection; nil if nobody does.
	watch func() (gone <-chan struct{}, stop func())
	// severed says that a lane was lost, or that its own connection leads elsewhere.
	severed bool
	reader  chan struct{} // closed when the reader of its own connection has ended; nil if there never was one

	mu     sync.Mutex
	room   *sync.Cond
	ledger ledger    // guarded by mu
	up     net.Conn  // guarded by mu; its own connection, or the one that was lost
	upw    io.Writer // guarded by mu; up's way out
	held   bool      // guarded by mu; the session is about to use up
	large  int       // guarded by mu; for how many requests it keeps up because of large ones
	broken bool      // guarded by mu; a request was begun on up whose end may never come
	kept   bool      // guarded by mu; see Keep
	letGo  bool      // guarded by mu; see LetGo
	look   bool      // guarded by mu; see lookLocked
	// salvaging says that the client has gone and the connection is brought back to what it was.
	salvaging bool   // guarded by mu
	inFlight  int    // guarded by mu; replies still to come by lane, or to be taken back
	waitsAt   *lane  // guarded by mu; where the session may be waiting to submit
	lost      error  // guarded by mu; why the session can't go on
	ending    bool   // guarded by mu; close the client once nothing is owed to it
	leaving   bool   // guarded by mu; the client has closed: an end of the upstream is no loss
	within    bool   // guarded by mu; the client has been given a part of a reply
	pushes    []byte // guarded by mu; wait for the end of that reply
	abandon   *time.Timer
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

// Watching has the client watched while the session waits in line for a connection: gone must be closed if it closes meanwhile, and stop ends
// that.
func (p *Pipe) Watching(watch func() (gone <-chan struct{}, stop func())) { p.watch = watch }

// Way is how a request may go.
type Way uint8

const (
	Own     Way = iota // by a connection of the session's own
	Shared             // by one that others use too
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
	if p.up != nil {
		p.held, p.letGo, p.isNew, p.rides = true, false, false, false
		p.mu.Unlock()
		return false, nil
	}
	if p.lanes.perIdentity > 0 && p.out.backlogged() {
		p.large = largeFor
	}
	id := p.ledger.Identity
	shares := way != Own && p.lanes.perIdentity > 0 && p.ledger.Trusted && p.large == 0 && !p.lanes.apart(id)
	p.mu.Unlock()
	if p.failed != nil {
		return false, p.failed
	}
	p.scripts = p.scripts || way == Scripts
	if shares {
		connects, err = p.ride(ctx, timeout, laneKind{id, p.scripts})
		if err != nil && !id.LoggedIn && demandsLogin(err) {
			p.distrust()
			shares = false
		}
	}
	if !shares {
		connects, err = p.pin(ctx, timeout)
	}
	p.failed = err
	return connects, err
}

// New reports whether Connect has just given the session a connection of its own, on which it hasn't sent anything.
func (p *Pipe) New() bool { return p.isNew }

// Severed reports whether the session's earlier requests went by a connection that was lost since, or to another server than the one
// that it is connected to now: what it wrote there may be unknown here.
func (p *Pipe) Severed() bool { return p.severed }

// Rides reports whether the last request that Connect was called for goes by a connection that others use too.
func (p *Pipe) Rides() bool { return p.rides }

// Keep says whether the session keeps its own connection though its replies don't tell why.
func (p *Pipe) Keep(keep bool) {
	p.mu.Lock()
	p.kept = keep
	p.mu.Unlock()
}

// Mark says that a request may have left something on the session's own connection that isn't followed here: nobody else may use it.
func (p *Pipe) Mark() {
	p.mu.Lock()
	p.ledger.stays = true
	p.mu.Unlock()
}

// push notes what the client is owed, and waits while that is too much.
func (p *Pipe) push(e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for (p.ledger.len() >= maxEntries || p.rides && p.inFlight >= maxInFlight) && p.lost == nil {
		p.mu.Unlock()
		p.send()
		p.mu.Lock()
		if p.ledger.len() >= maxEntries || p.rides && p.inFlight >= maxInFlight {
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
	case p.rides:
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
	p.mu.Lock()
	p.held = false // what is owed for the queued requests keeps up from being given up
	p.lookLocked()
	p.mu.Unlock()
	p.send()
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
	up, upw, lost := p.up, p.upw, p.lost
	p.mu.Unlock()
	switch {
	case lost != nil:
		p.asked = 0
	case p.rides:
		p.submit(raw)
	case up != nil:
		p.out.hurry(1) // it may take no more before what it says has been read
		_, err := upw.Write(raw)
		p.out.hurry(-1)
		if err != nil {
			up.Close() // the reader reports the loss
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
