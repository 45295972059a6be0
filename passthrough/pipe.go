package passthrough

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
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

// Pipe is one session's way to Redis. Only the reader of the client may call its methods (the
// session's goroutine, or the event loop in its place), except Push, State, OpenOwn, and End with
// AtOnce.
type Pipe struct {
	c         client
	lanes     laneSide
	homes     homeSide
	failed    error // why the last Route failed, until Flush
	failedWay Way   // for what
	// until when failed counts, if it is of Enter; zero for others
	failedUntil time.Time
	atHome      bool // Route may have chosen the home, or something goes there, since Flush
	lingering   *time.Timer
	login       [][]string // what logInAgain sent last
	numbers     bool       // the client has asked for what shows numbers: EXEC may, too
	// Waiter is told of all Answers. Set it before the first request.
	Waiter Waiter
}

// NewPipe returns a Pipe for client, without connections. direct is client's socket, or nil if it
// has none. encode makes the reply to a request that was lost with a
// connection.
func NewPipe(lanes *Pool, client net.Conn, direct *socket.Socket, encode func(error) []byte) *Pipe {
	p := &Pipe{}
	p.c.pool, p.c.encodeError = lanes, encode
	p.c.out = newClientWriter(client, direct, &lanes.unread)
	p.lanes.c, p.homes.c = &p.c, &p.c
	p.c.room = sync.NewCond(&p.c.mu)
	p.c.pending.State = newState(lanes.Upstream.Initial)
	return p
}

// Enter begins for a new client. If Redis lets in new clients, or those that log in, this one needs
// no home yet. Otherwise it gets one at once, where Redis itself answers it.
func (p *Pipe) Enter(ctx context.Context) {
	if p.c.pool.LanesPerKey > 0 && p.c.pool.sharing.allowed() {
		switch said, of := p.c.pool.admits(); said {
		case admitted:
			p.c.mu.Lock()
			defer p.c.mu.Unlock()
			p.c.pending.Admitted = true
			p.c.doubt.Store(uint64(of))
			p.c.pool.wantSpares()
			return
		case loginFirst: // its first request can be a login
			p.c.pool.wantSpares()
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

// Route chooses the route of the requests until the next Flush, and opens a home if necessary. The
// error is an *upstream.Error with Sent false, an *upstream.Refused or a LoginError. Until Flush,
// Route returns the same error again, so that several requests do not each wait for a dead address.
//
// Route, Relay, Send, Do, Ask and Flush wait if they must, unless an event loop calls them in an
// iteration. A goroutine calls them with nil.
func (p *Pipe) Route(ctx context.Context, way Way, it *eventloop.Iteration) error {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.routeLocked(ctx, &Request{Way: way}, it)
}

// Send is Route and Relay of a request. In an event loop it returns ErrWaits, and has sent nothing,
// if it would have to wait.
func (p *Pipe) Send(ctx context.Context, r Request, it *eventloop.Iteration) error {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if r.Way == Login {
		if asked, err := p.judgeLocked(&r, it); asked || err != nil {
			return err
		}
		r.Way = Home
	}
	err := p.routeLocked(ctx, &r, it)
	if err == nil && !p.relayLocked(r, it) {
		return ErrWaits
	}
	return err
}

// judgeLocked puts a login to a judge, if one can hear it and lanes serve the client then.
// Otherwise the login must go by the home. In an event loop err is ErrWaits while the client is
// owed something. mu is held.
func (p *Pipe) judgeLocked(r *Request, it *eventloop.Iteration) (asked bool, err error) {
	c := &p.c
	switch {
	case it != nil && !c.pending.empty():
		return false, ErrWaits
	case c.home != nil, !c.pending.empty(), c.pending.fresh, c.pending.Has(unlikeNew), c.within,
		c.needsHome.any(), c.end != notEnding, c.route != byLane && c.route != byHome,
		len(r.Raw) > maxPlea, !c.pool.sharing.allowed(), c.pool.spread,
		!c.pool.hasLanes(loginOf(r.after(c.pending.Identity))):
		return false, nil
	}
	if !c.pool.hear(plea{c, slices.Clone(r.Raw)}) {
		return false, nil
	}
	e := r.entry()
	e.judged = true
	c.setRoute(byLane)
	c.pending.push(e)
	c.inFlight++ // no write: what Writes says stays
	p.homes.judgedAt, p.homes.refused = monotonic.Now(), false
	return true, nil
}

// decision is what Route does next.
type decision uint8

const (
	leaveIt    decision = iota // nothing: a goroutine must
	fail                       // the session is lost, or an earlier failure counts
	logInFirst                 // the home logs in again, then Route decides once more
	stayOnLane                 // the lane serves
	stayHome                   // the home serves
	change                     // the session leaves a connection, or gets one
)

// routeLocked is Route with mu held, but not while it waits.
func (p *Pipe) routeLocked(ctx context.Context, r *Request, it *eventloop.Iteration) error {
	if p.c.mustLogIn() && !p.judgeAgainLocked(it) {
		return ErrWaits
	}
	if p.c.route == byLane && p.c.pending.effects > 0 && !p.lanes.leaveLaneLocked(it) {
		return ErrWaits // the reply to a greeting says which lane is next
	}
	if !p.failedUntil.IsZero() && time.Now().After(p.failedUntil) {
		p.failed, p.failedUntil = nil, time.Time{}
	}
	p.lanes.noteLocked(r.Way)
	next, to := p.nextLocked(r, it != nil)
	if next == logInFirst {
		p.logInAgainLocked()
		next, to = p.nextLocked(r, false)
	}
	p.atHome = p.atHome || next != stayOnLane
	switch next {
	case leaveIt:
		return ErrWaits
	case fail:
		if p.c.route == gone {
			return p.c.neverSent()
		}
		return p.failed
	case stayOnLane:
		p.c.setRoute(byLane)
	case stayHome:
		p.homes.useHomeLocked()
	case change:
		p.c.mu.Unlock()
		defer p.c.mu.Lock()
		return p.change(ctx, r, to, it)
	}
	return nil
}

// nextLocked says what Route does for a request, and which lane can serve it. It changes nothing.
// mu is held.
func (p *Pipe) nextLocked(r *Request, inLoop bool) (next decision, to laneChoice) {
	c := &p.c
	switch {
	case inLoop && (p.failed != nil || c.pending.fresh || c.end != notEnding || c.route == gone):
		return leaveIt, to
	case c.route == gone, p.failed != nil && p.failedWay != Home && p.failedWay != NewHome:
		return fail, to // though there can be a lane by now
	case c.pending.fresh:
		return logInFirst, to
	}
	to = p.lanes.chooseLocked(r)
	switch {
	case to.shares && p.lanes.lane != nil && p.lanes.lane.key == to.kind && p.lanes.lane.serves():
		return stayOnLane, to
	case inLoop && (to.shares && to.waits || !to.shares && (to.apart || c.needsHome.large > 0)):
		return leaveIt, to
	case !to.shares && p.lanes.lane == nil && c.home != nil:
		return stayHome, to
	}
	return change, to
}

// change is Route for a session that leaves a connection, or gets one.
func (p *Pipe) change(
	ctx context.Context, r *Request, to laneChoice, it *eventloop.Iteration,
) error {
	if to.shares {
		uses, err := p.lanes.useLane(ctx, to, it)
		if err != nil {
			return p.fails(ctx, err, r.Way)
		}
		if uses {
			return nil
		}
	}
	if !p.lanes.leaveLane(it) {
		return ErrWaits
	}
	switch {
	case p.homes.useHome():
	case it != nil && !to.shares && p.homes.takeHome():
	case it != nil:
		return ErrWaits
	case p.failed == nil:
		return p.fails(ctx, p.homes.openHome(ctx, r), r.Way)
	default:
		return p.failed
	}
	return nil
}

// fails keeps why Route fails, unless its caller has given up: that says nothing about the next.
func (p *Pipe) fails(ctx context.Context, err error, way Way) error {
	if ctx.Err() != context.DeadlineExceeded {
		p.failed, p.failedWay = err, way
	}
	return err
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
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if hold == ForGood {
		p.c.pending.set(stickyState, true)
		return
	}
	p.c.needsHome.pinned, p.c.needsHome.kept = hold == Pinned, hold == Kept
}

// enqueueLocked gathers a request, or e's call, and e that the client will be owed for it. Flush
// sends it; much of it is sent at once. mu is held, but not while it waits.
func (p *Pipe) enqueueLocked(e pendingReply, raw []byte, it *eventloop.Iteration) (done bool) {
	switch hasRoom := p.awaitRoomLocked(it); {
	case !hasRoom:
		return false
	case p.c.route == byLane && p.lanes.addLocked(e, raw, it):
		return true
	case it != nil && (p.c.route != byHome || p.c.needsHome.open || p.c.home == nil ||
		!p.c.home.writesAtOnce()):
		return false // it could not be sent at once
	}
	p.atHome = true // others can have chosen the home since Route: see asideLocked
	p.c.expectLocked(e)
	if e.call() != nil {
		p.homes.queueCallLocked(e.answer)
	} else {
		p.homes.queueLocked(raw, it)
	}
	return true
}

// AwaitRoom waits while the client is owed too much. Called before Reply, it bounds the replies
// that wait for their turn.
func (p *Pipe) AwaitRoom() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.awaitRoomLocked(nil)
}

// awaitRoomLocked is AwaitRoom with mu held, but not while it waits. In an event loop it reports
// whether there is room.
func (p *Pipe) awaitRoomLocked(it *eventloop.Iteration) (hasRoom bool) {
	for p.c.fullLocked() {
		if it != nil {
			return false
		}
		if p.sendLocked(); p.c.fullLocked() {
			p.c.out.addMustRead(1)
			loopguard.MayWait()
			p.c.room.Wait()
			p.c.out.addMustRead(-1)
		}
	}
	return true
}

// Flush sends what is gathered. Before the next request the session must call Route. An event loop
// sends what goes by a lane at the end of the iteration, or before anything that came later goes by
// a home. It reports false if Redis has not taken all at once: then the goroutine must call Flush
// before anything else is sent.
func (p *Pipe) Flush(it *eventloop.Iteration) (all bool) {
	if it != nil && !p.atHome {
		return true
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.home != nil && p.c.home.phase == held {
		p.c.home.becomes(recent)
	}
	if it != nil {
		if p.homes.closeCallsLocked(); p.c.pending.fresh || len(p.homes.unsent) == 0 {
			p.atHome = p.c.route != byLane
			return !p.c.pending.fresh
		}
		it.Flush()
		return p.homes.flushLocked(it)
	}
	if p.c.pending.fresh {
		p.logInAgainLocked()
	}
	p.failed, p.failedUntil, p.atHome = nil, time.Time{}, false
	p.sendLocked()
	return true
}

// sendLocked is Flush for requests of the same Route. mu is held, but not while it waits.
func (p *Pipe) sendLocked() {
	p.lanes.flushLocked()
	p.homes.flushLocked(nil)
}

// State returns the state of the home according to the replies so far. settled is false while a
// reply that may change it is missing.
func (p *Pipe) State() (s State, settled bool) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.pending.State, p.c.pending.effects == 0
}

// Databases are those in which the next request can run: that of State, and then, in order, those
// of SELECTs that have no reply yet, or stand in a transaction.
func (p *Pipe) Databases() []int {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.pending.databases()
}
