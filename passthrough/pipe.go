package passthrough

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/socket"
)

const (
	maxEntries = 16 << 10 // of about 100 bytes each; a batch of plain requests is one
	// maxHeld is what the entries of one client can keep in memory before further requests wait:
	// names, passwords and the proxy's own replies, bytes.
	maxHeld = 1 << 20
	// Linger is how long Redis can stay silent after the client has closed and everything was sent,
	// and how long the client can take to read what it is owed when its connection is lost.
	Linger = 30 * time.Second
	// maxCall bounds a reply to the proxy's own request, bytes.
	maxCall = 64 << 20
)

// ErrClosed is the outcome of requests when the proxy has closed the Pipe.
var ErrClosed = errors.New("connection closed")

// Pipe is one session's way to Redis. Only the reader of the client may call its methods (the
// session's goroutine, or the event loop in its place), except Push, State, and End with AtOnce.
type Pipe struct {
	client
	laneSide
	homeSide
	failed    error // why the last Route failed, until Flush
	failedWay Way   // for what
	// until when failed counts, if it is of Enter; zero for others
	failedUntil time.Time
	lingering   *time.Timer
	login       [][]string // what logInAgain sent last
	numbers     bool       // the client has asked for what shows numbers: EXEC may, too
	// Waiter is told of the answers to what an event loop asks. Set it before the first request.
	Waiter Waiter
}

// Ending says what the end of a session waits for: see End.
type Ending uint8

const (
	notEnding    Ending = iota // the session does not end
	WhenAnswered               // the client is closed once nothing is owed to it
	ClientGone                 // the client has closed: an end of the upstream is no loss
	AtOnce                     // nothing
)

// NewPipe returns a Pipe for client, without connections. direct is client's socket, or nil if the
// bytes on it differ, as with TLS. encode makes the reply to a request that was lost with a
// connection.
func NewPipe(lanes *Pool, client net.Conn, direct *socket.Socket, encode func(error) []byte) *Pipe {
	p := &Pipe{}
	p.pool, p.encodeError = lanes, encode
	p.out = newClientWriter(client, direct, &lanes.unread)
	p.laneSide.client, p.homeSide.client = &p.client, &p.client
	p.room = sync.NewCond(&p.mu)
	p.pending.State = newState(lanes.Upstream.Initial)
	return p
}

// Enter begins for a new client. If Redis lets in new clients, this one needs no home yet. Otherwise
// it gets one at once, where Redis itself answers it.
func (p *Pipe) Enter(ctx context.Context) {
	if p.pool.LanesPerKey > 0 && p.pool.sharing.allowed() {
		if said, of := p.pool.admits(); said == admitted {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pending.Admitted = true
			p.doubt.Store(uint64(of))
			p.pool.wantSpares()
			return
		}
	}
	if p.Route(ctx, Home, nil) != nil {
		// The requests that have come meanwhile are answered by the error, instead of another dial.
		p.failedUntil = time.Now().Add(enterFailure)
		return
	}
	p.Flush(nil)
}

// enterFailure is for how long a failure to open the first home counts for requests.
const enterFailure = time.Second

// Way says how a request can go.
type Way uint8

const (
	Home    Way = iota // by the home
	Shared             // by a lane
	Scripts            // by a lane for clients that run scripts, which can take long
	NewHome            // by the home; if none is open, by one on which nothing was sent before
	// Apart is Shared also for a client with CLIENT TRACKING, if a lane can be had and the home owes
	// nothing: what the proxy itself reads for the client is not tracked.
	Apart
)

// ErrWaits is the outcome of what would have to wait in an event loop. Nothing was done: the
// session's goroutine must do it.
var ErrWaits = errors.New("this has to wait")

// Route chooses the route of the requests until the next Flush, and opens a home if necessary. The
// error is an *upstream.Error with Sent false, or an *upstream.Refused. Until Flush, Route returns
// the same error again, so that several requests do not each wait for a dead address.
//
// Route, Relay, Do, Ask and Flush wait if they must, unless an event loop calls them in an
// iteration. A goroutine calls them with nil.
func (p *Pipe) Route(ctx context.Context, way Way, it *eventloop.Iteration) error {
	if p.mustLogIn() && !p.judgeAgain(it) {
		return ErrWaits
	}
	p.mu.Lock()
	if p.failed != nil && !p.failedUntil.IsZero() && time.Now().After(p.failedUntil) {
		p.failed = nil
	}
	switch {
	case it != nil && (p.failed != nil || p.pending.fresh || p.end != notEnding || p.route == gone):
		p.mu.Unlock()
		return ErrWaits
	case p.route == gone:
		defer p.mu.Unlock()
		return p.neverSent()
	case p.failed != nil && p.failedWay != Home && p.failedWay != NewHome:
		p.mu.Unlock()
		return p.failed // though there can be a lane by now
	case p.pending.fresh:
		p.mu.Unlock()
		p.logInAgain()
		p.mu.Lock()
	}
	shares, kind := p.chooseLocked(way)
	apart := way == Apart && p.keepsApart()
	large := !shares && p.needsHome.large > 0
	p.mu.Unlock()
	if it != nil && (large || shares && p.waitsForLane(kind, apart) || apart && !shares) {
		return ErrWaits
	}
	if shares {
		uses, err := p.useLane(ctx, kind, apart, it)
		if err != nil {
			p.failed, p.failedWay = err, way
			return err
		}
		if uses {
			p.leaveFirst(true)
			return nil
		}
	}
	if !p.leaveLane(it) {
		return ErrWaits
	}
	if p.useHome() {
		if shares {
			p.leaveFirst(false)
		}
		return nil
	}
	switch {
	case it != nil && !shares && p.takeHome():
		return nil
	case it != nil:
		return ErrWaits
	case p.failed == nil:
		p.failed, p.failedWay = p.openHome(ctx, way == NewHome), way
	}
	return p.failed
}

// Hold says for how long a session stays at its home: see Pin.
type Hold uint8

const (
	Unpinned Hold = iota // as State says
	Pinned               // until it is Unpinned; the session ends with it
	Kept                 // until it is Unpinned or lost: then requests are answered as lost, until Route
	ForGood              // for good: a request may have changed the connection in an unknown way
)

// Pin keeps the session at its home, whatever State says.
func (p *Pipe) Pin(hold Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hold == ForGood {
		p.pending.stickyState = true
		return
	}
	p.needsHome.pinned, p.needsHome.kept = hold == Pinned, hold == Kept
}

// enqueue gathers a request, or e's call, and e that the client will be owed for it. Flush sends
// it; much of it is sent at once.
func (p *Pipe) enqueue(e pendingReply, raw []byte, it *eventloop.Iteration) (done bool) {
	route, hasRoom := p.awaitRoom(it)
	switch {
	case !hasRoom:
		return false
	case route == byLane && p.addToLane(e, raw, it):
		return true
	case it != nil && (route == byLane || !p.sendsAtOnce()):
		return false
	}
	p.expect(e)
	if e.call() != nil {
		p.queueCall(e.answer)
	} else {
		p.queue(raw, it)
	}
	return true
}

// AwaitRoom waits while the client is owed too much. Called before Reply, it bounds the replies that
// wait for their turn.
func (p *Pipe) AwaitRoom() { p.awaitRoom(nil) }

// awaitRoom is AwaitRoom that returns the route. In an event loop it reports whether there is room.
func (p *Pipe) awaitRoom(it *eventloop.Iteration) (to route, hasRoom bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.fullLocked() {
		if it != nil {
			return p.route, false
		}
		p.mu.Unlock()
		p.send()
		p.mu.Lock()
		if p.fullLocked() {
			p.out.addMustRead(1)
			loopguard.MayWait()
			p.room.Wait()
			p.out.addMustRead(-1)
		}
	}
	return p.route, true
}

// Flush sends what is gathered. Before the next request the session must call Route. An event loop
// sends what goes by a lane at the end of the iteration, or before anything that came later goes by
// a home. It reports false if Redis has not taken all at once: then the goroutine must call Flush
// before anything else is sent.
func (p *Pipe) Flush(it *eventloop.Iteration) (all bool) {
	p.mu.Lock()
	fresh := p.pending.fresh
	if p.homeUse == held {
		p.homeUse = recent
	}
	p.mu.Unlock()
	if it != nil {
		if p.closeCalls(); fresh || len(p.unsent) == 0 {
			return !fresh
		}
		it.Flush()
		return p.flushHome(it)
	}
	if fresh {
		p.logInAgain()
	}
	p.failed, p.failedUntil = nil, time.Time{}
	p.send()
	return true
}

// send is Flush for requests of the same Route.
func (p *Pipe) send() {
	p.flushLane()
	p.flushHome(nil)
}

// State returns the state of the home according to the replies so far. settled is false while a
// reply that may change it is missing.
func (p *Pipe) State() (s State, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending.State, p.pending.effects == 0
}
