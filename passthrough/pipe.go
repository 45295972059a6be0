// Package passthrough carries requests to the upstream Redis and brings its replies back, byte for
// byte and in order.
//
// Each client has one upstream connection of its own, its home, opened when the client connects and
// closed when it leaves. Everything that depends on connection state happens there. A request that
// depends on nothing may take the lane instead, a connection shared by all clients with the same
// login, database and protocol, because that is cheaper. A Pipe is one client's way to both: a
// homeSide and a laneSide, and what the client is owed, by whichever of them that comes:
//
//	session goroutine:  Connect, Relay, Do  ->  Flush     ->  home, or lane: gathered, one write for many
//	event loop:         TryRelay  ->  TryFlush            ->  home at once; lanes at the end of the
//	                                                          iteration,
//	                                                          or before anything goes by a home
//	event loop, or the reader of a lane or a home:
//	                    upstream  ->  cut into replies  ->  pending queue  ->  clientWriter  ->  client
//
// Connect chooses the way, by the request (Way) and by State: the lane serves a client that Redis
// has let in, whose connection is as a new one, while nothing is owed to it by the home, and the
// other way round. There is no lane for a single client of its kind, and none is waited for: until
// it is open, the home serves. So a request is never held up by the opening of a connection but the
// home's own.
//
// When Redis ends a home, it ends the client too, as directly. A client that has not logged in
// itself goes on with another home if the connection was as a new one, and Redis as a whole was
// away rather than this connection closed alone: see home.reportLoss.
//
// Neither direction holds a whole message of a home: what is read is passed on. On a lane requests
// are whole. Nobody who gives waits for the client (see clientWriter). The reader of a home waits, so
// that the upstream keeps what its client leaves unread, but never while the session waits for the
// upstream. A client that leaves much unread on a lane goes on at home. The pending queue says what each
// reply belongs to, so that the proxy can answer a request itself in its turn (Reply), keep a reply
// to itself (Do), and know the state of the home (State). Nothing is ever sent twice. What is lost
// with a connection is answered as lost.
//
// Memory: for each session what waits to be sent, the replies that its client leaves unread up to
// overflowMemory, and while its home is read by a goroutine a buffer of bufSize at most; a queue of at
// most maxEntries.
//
// This package doesn't know what a lock is, nor a command's name but for those that set a
// connection up.
package passthrough

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"lockproxy/internal/socket"
)

const (
	maxEntries = 16 << 10 // of about 100 bytes each; a run of plain requests is one
	// linger is how long the upstream may be silent after the client has closed and all has been
	// sent to it.
	linger = 30 * time.Second
	// maxCall bounds a reply that is kept in memory, bytes.
	maxCall = 64 << 20
)

// ErrClosed is the outcome of what was asked by a Pipe that was closed by its own side.
var ErrClosed = errors.New("connection closed")

// Pipe is one session's way to the upstream. Its methods are for whatever reads the client, the
// session's goroutine or an event loop in its place, except Push, State, and End with AtOnce.
type Pipe struct {
	client
	laneSide
	homeSide
	failed    error // the last connect's failure, until the batch of requests that met it ends
	lingering *time.Timer
}

// Ending is what the end of a session waits for: see End.
type Ending uint8

const (
	notEnding    Ending = iota // it doesn't end
	WhenAnswered               // the client is closed once nothing is owed to it
	ClientGone                 // the client has closed: an end of the upstream is no loss
	AtOnce                     // nothing
)

// NewPipe returns a Pipe for client. It opens no connection yet. direct is client's socket, nil if
// what client is given isn't what that must be. encode makes the error reply for a request that was
// lost with a connection.
func NewPipe(lanes *Pool, client net.Conn, direct *socket.Socket, encode func(error) []byte) *Pipe {
	p := &Pipe{}
	p.pool, p.encodeError, p.out = lanes, encode, newClientWriter(client, direct)
	p.laneSide.client, p.homeSide.client = &p.client, &p.client
	p.out.queue.all = &lanes.unread
	p.room = sync.NewCond(&p.mu)
	p.pending.State = newState(lanes.Upstream.Initial)
	return p
}

// Way is how a request may go.
type Way uint8

const (
	Home    Way = iota // by the session's home
	Shared             // by a lane
	Scripts            // likewise, but it may take so long that those who run no scripts must not stand behind it
)

// Connect makes sure that there is a way for the next requests, up to Flush. The error is an
// *upstream.Error with Sent false, or an *upstream.Refused; it is remembered up to Flush, so that
// not each of several requests waits for the same dead address.
func (p *Pipe) Connect(ctx context.Context, way Way) error {
	p.mu.Lock()
	if p.route == gone {
		defer p.mu.Unlock()
		return p.neverSent()
	}
	if p.pending.fresh {
		p.mu.Unlock()
		p.logInAgain()
		p.mu.Lock()
	}
	shares, kind := p.chooseLocked(way)
	lost := p.home == nil && p.homeUse != unneeded
	p.mu.Unlock()
	// A home that was lost is dialled again also for what could go by a lane: the client may need
	// it next.
	if !lost && shares && p.useLane(kind) {
		return nil
	}
	p.leaveLane()
	if p.useHome() {
		return nil
	}
	if p.failed == nil {
		p.failed = p.openHome(ctx)
	}
	return p.failed
}

// Hold is for how long a session stays at its home: see Pin.
type Hold uint8

const (
	Unpinned Hold = iota // as long as State says
	Pinned               // until it is Unpinned
	ForGood              // for good: a request may have left something there that isn't followed here
)

// Pin says whether the session stays at its home though its replies don't tell why.
func (p *Pipe) Pin(hold Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hold == ForGood {
		p.pending.stickyState = true
		return
	}
	p.needsHome.pinned = hold == Pinned
}

// request sends a request of which the client will be owed e, or gathers it until Flush.
func (p *Pipe) enqueue(e pendingReply, raw []byte) {
	if p.awaitRoom() == byLane && p.addToLane(e, raw) {
		return
	}
	p.expect(e)
	p.queue(raw)
}

// awaitRoom waits while the client is owed too much. It returns the route.
func (p *Pipe) awaitRoom() route {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.fullLocked() {
		p.mu.Unlock()
		p.send()
		p.mu.Lock()
		if p.fullLocked() {
			p.out.keepReading(1)
			p.room.Wait()
			p.out.keepReading(-1)
		}
	}
	return p.route
}

// Flush sends what is queued. Before the next request the session must Connect.
func (p *Pipe) Flush() {
	p.mu.Lock()
	fresh := p.pending.fresh
	if p.homeUse == held {
		p.homeUse = recent
	}
	p.mu.Unlock()
	if fresh {
		p.logInAgain()
	}
	p.failed = nil
	p.send()
}

// send sends what is queued, in the midst of what Connect was called for.
func (p *Pipe) send() {
	p.flushLane()
	p.flushHome()
}

// State returns the state of the connection as of the replies that have come; settled says that no
// reply which may change it is still to come.
func (p *Pipe) State() (s State, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending.State, p.pending.effects == 0
}
