// Package passthrough carries requests to the upstream Redis and brings its replies back, byte for byte and in order.
//
// Each client has one upstream connection of its own, its home, opened when the client connects and
// closed when it leaves. Everything that depends on connection state happens there. A request that
// depends on nothing may take the lane instead, a connection shared by all clients with the same login,
// database and protocol, because that is cheaper. A Pipe is one client's way to both:
//
//	session goroutine:  Connect, Relay, Do  ->  Flush     ->  home, or lane: gathered, one write for many
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
// so that the proxy can answer a request itself in its turn (Reply), keep a reply to itself (Do), and
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
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/commands"
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

// ErrClosed is the outcome of what was asked by a Pipe that was closed by its own side.
var ErrClosed = errors.New("connection closed")

// Pipe is one session's way to the upstream. Its methods are for whatever reads the client, the session's
// goroutine or an event loop in its place, except Push, State, and End with AtOnce.
type Pipe struct {
	lanes    *Lanes
	encode   func(error) []byte // makes the reply to a request that was lost
	out      *outbox
	wbuf     []byte      // to go by the home, not yet sent
	added    bool        // the lane has something of the session's that may not have been sent
	failed   error       // the last connect's failure, until the batch of requests that met it ends
	lastHome *home       // that was opened last, nil if none ever was
	scripts  bool        // the session has run scripts of its client's
	aloneIn  laneKind    // what alone is about; written before that is set
	alone    atomic.Bool // no other session asks for a lane of that kind

	mu       sync.Mutex
	room     *sync.Cond
	ledger   ledger      // guarded by mu
	home     *home       // guarded by mu; nil while it isn't open
	need     need        // guarded by mu; of the home
	idle     *time.Timer // calls closeIdle; nil if nothing does
	route    route       // guarded by mu; changed by setRoute
	lost     error       // guarded by mu; why route is gone
	end      Ending      // guarded by mu; only ever raised
	writes   Writes      // guarded by mu
	stay     stay        // guarded by mu
	inFlight int         // guarded by mu; replies still to come by lane, or to be taken back
	lane     *lane       // that the session uses, nil if none; written by the session with mu held, so it reads it without
	within   bool        // guarded by mu; the client has been given a part of a reply
	pushes   []byte      // guarded by mu; wait for the end of that reply
	abandon  *time.Timer
}

// route is how a session's requests go, and how what it is owed comes.
type route uint8

const (
	byHome  route = iota
	byLane        // by a connection that others use too
	dropped       // the home was lost since Connect: what follows is answered as lost until that is called again
	gone          // nowhere any more: lost says why
)

// setRoute changes the route, if nothing is in flight on the old one. mu is held.
func (p *Pipe) setRoute(to route) (changed bool) {
	switch {
	case to == p.route:
		return true
	case p.route == gone:
		return false
	case to == byLane:
		changed = p.route == byHome && p.ledger.empty() && !p.within
	case p.route == byLane:
		changed = to == gone || to == byHome && p.inFlight == 0
	default:
		changed = true
	}
	if changed {
		p.route = to
	}
	return changed
}

// Ending is what the end of a session waits for: see End.
type Ending uint8

const (
	stays        Ending = iota // it doesn't end
	WhenAnswered               // the client is closed once nothing is owed to it
	ClientGone                 // the client has closed: an end of the upstream is no loss
	AtOnce                     // nothing
)

// Writes says where the requests have gone that the session has sent so far.
type Writes uint8

const (
	AtHome    Writes = iota // by the home that is open
	Elsewhere               // some by a lane, or by an earlier home
	Unknown                 // some by a connection that was lost since, or to another server: the upstream may not have them
)

// stay is why a session stays at its home though State doesn't tell why.
type stay struct {
	pinned bool // see Pin
	begun  bool // a request was begun whose end may never come
	large  int  // for how many requests it does because of large ones
}

func (s *stay) any() bool { return s.pinned || s.begun || s.large > 0 }

// need says whether a home is needed, for closeIdle.
type need uint8

const (
	recent   need = iota // since closeIdle looked
	held                 // the session is about to use it
	unneeded             // a home that isn't open was closed for that
)

// NewPipe returns a Pipe for client. It opens no connection yet. direct is client's socket, nil if what client is given isn't what that
// must be. encode makes the error reply for a request that was lost with a connection.
func NewPipe(lanes *Lanes, client net.Conn, direct *socket.Socket, encode func(error) []byte) *Pipe {
	p := &Pipe{lanes: lanes, encode: encode, out: newOutbox(client, direct)}
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

// Connect makes sure that there is a way for the next requests, up to Flush. The error is an *upstream.Error with
// Sent false, or an *upstream.Refused; it is remembered up to Flush, so that not each of several requests waits for
// the same dead address.
func (p *Pipe) Connect(ctx context.Context, way Way) error {
	p.mu.Lock()
	if p.route == gone {
		defer p.mu.Unlock()
		return p.neverSent()
	}
	if p.ledger.fresh {
		p.mu.Unlock()
		p.logInAgain()
		p.mu.Lock()
	}
	shares, kind := p.chooseLocked(way)
	lost := p.home == nil && p.need != unneeded
	p.mu.Unlock()
	// A home that was lost is dialled again also for what could go by a lane: the client may need it next.
	if !lost && shares && p.useLane(kind) {
		return nil
	}
	p.useHome() // what sets a new home up goes by it too
	if p.atHome() {
		return nil
	}
	if p.failed == nil {
		p.failed = p.openHome(ctx)
	}
	return p.failed
}

// atHome makes ready for a request that goes by the home, and reports whether that is open. If it was
// lost since Connect, what was to go by it has been answered, and is dropped.
func (p *Pipe) atHome() (open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.route == dropped {
		p.wbuf = keepBuffer(p.wbuf)
		p.setRoute(byHome)
	}
	if p.home != nil {
		p.need = held
	}
	return p.home != nil
}

// chooseLocked reports whether a request may go by a lane now, and of which kind that must be. mu is held.
func (p *Pipe) chooseLocked(way Way) (shares bool, kind laneKind) {
	if p.lanes.perIdentity > 0 && p.out.backlogged() {
		p.stay.large = largeFor
	}
	p.scripts = p.scripts || way == Scripts
	free := p.route == byLane || p.route == byHome && p.ledger.empty() && !p.within
	shares = free && way != Own && p.lanes.maySessionsShare() && !p.stay.any() && p.ledger.Shareable()
	return shares, laneKind{p.ledger.Identity, p.scripts}
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
		p.ledger.stays = true
		return
	}
	p.stay.pinned = hold == Pinned
}

// request sends a request of which the client will be owed e, or gathers it until Flush.
func (p *Pipe) request(e entry, raw []byte) {
	if p.awaitRoom() == byLane && p.addToLane(e, raw) {
		return
	}
	p.push(e)
	p.queue(raw)
}

// fullLocked reports whether the client is owed so much that it is owed nothing more for now. mu is held.
func (p *Pipe) fullLocked() bool {
	return p.route != gone && (p.ledger.len() >= maxEntries || p.route == byLane && p.inFlight >= maxInFlight)
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
			p.out.hurry(1)
			p.room.Wait()
			p.out.hurry(-1)
		}
	}
	return p.route
}

// push notes what the client is owed, by the home or as lost.
func (p *Pipe) push(e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.push(e)
	if e.Effect == commands.Quit {
		p.end = max(p.end, WhenAnswered)
	}
	switch {
	case p.route == gone:
		p.settleLost()
	case p.route == dropped && e.Effect != commands.NoEffect: // what comes behind it may mean something else without it
		text, awaited := p.lose(p.neverSent())
		if !awaited {
			p.end = max(p.end, WhenAnswered)
		}
		p.giveLocked(text)
	case p.route == dropped:
		p.giveLocked(p.settle(nil, math.MaxInt, p.neverSent()))
	default:
		p.stay.large = max(0, p.stay.large-max(1, e.count))
	}
}

// queue gathers what goes by the home. What isn't worth that it sends, uncopied, behind what has been gathered.
func (p *Pipe) queue(raw []byte) {
	switch {
	case len(raw) >= newBuffer:
		p.send()
		p.give(raw)
	case p.wbuf == nil:
		p.wbuf = append(takeBuffer(), raw...)
	default:
		p.wbuf = append(p.wbuf, raw...)
	}
	if len(raw) > bufSize {
		p.mu.Lock()
		p.stay.large = largeFor
		p.mu.Unlock()
	}
	if len(p.wbuf) >= bufSize {
		p.send()
	}
}

// Flush sends what is queued. Before the next request the session must Connect.
func (p *Pipe) Flush() {
	p.mu.Lock()
	fresh := p.ledger.fresh
	if p.need == held {
		p.need = recent
	}
	p.mu.Unlock()
	if fresh {
		p.logInAgain()
	}
	p.failed = nil
	p.send()
}

// send sends what is queued, in the midst of what Connect was called for. It yields before it has a lane
// flushed, so that all sessions that have something to ask add to it: one write, and one read of the
// upstream's, for many requests.
func (p *Pipe) send() {
	if p.added {
		p.added = false
		runtime.Gosched()
		p.lane.flush()
	}
	if len(p.wbuf) > 0 {
		p.give(p.wbuf)
		p.wbuf = keepBuffer(p.wbuf)
	}
}

// give sends raw by the home, if that is still there.
func (p *Pipe) give(raw []byte) {
	p.mu.Lock()
	home := p.home
	if p.route != byHome {
		home = nil
	}
	p.mu.Unlock()
	if home == nil {
		return
	}
	p.out.hurry(1) // it may take no more before what it says has been read
	_, err := home.way.Write(raw)
	p.out.hurry(-1)
	if err != nil {
		home.close() // the reader reports the loss
	}
}

// State returns the state of the connection as of the replies that have come; settled says that no reply which may change
// it is still to come.
func (p *Pipe) State() (s State, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.State, p.ledger.effects == 0
}
