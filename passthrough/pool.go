package passthrough

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/internal/upstream"
)

const (
	// laneSessions is how many sessions use a lane before another one is opened.
	laneSessions = 64
	// maxIdleLanes bounds the lanes without a session that are kept.
	maxIdleLanes = 8
	// refusalPause is for how long no lane is opened after Redis has refused its login.
	refusalPause = time.Second
)

// Config is what a Pool is made of.
type Config struct {
	Upstream    *upstream.Upstream
	LanesPerKey int           // at most, for each login, database and protocol; 0: no lanes
	DialTimeout time.Duration // bounds the opening of a connection
	Spares      int           // how many homes are open before their clients come
	BatchScript string        // the SHA of the script that runs several Calls; "" for none
	// OnDial is called whenever a home has been opened, or could not be.
	OnDial func(err error)
	// HomeIdle is after how long without a request a home is closed, if a new connection can take
	// its place. It is dialled again on demand. 0 keeps all homes.
	HomeIdle time.Duration
	// MaxUnread bounds the files for what all clients together leave unread, bytes.
	MaxUnread int64
	// OnDropped is called for each client that is closed because of this or another bound on what
	// it leaves unread. It must not wait.
	OnDropped func(client net.Addr, err error)
	// OnPanic is called for each client that is disconnected because of a panic in what a home has
	// said to it, and with nil for a lane that has ended so.
	OnPanic func(client net.Addr, fault *panics.Panic)
	// OnMoved is called when new connections lead to another server than before. It must not wait.
	OnMoved func(to upstream.Server)
}

// Pool has the lanes of each login, and what the homes of all sessions have in common. Make it with
// NewPool, and end it with Close. Safe for concurrent use.
type Pool struct {
	Config
	spread     bool // a connection is one to nodes that can be silent; RESET makes none as new
	unread     unreadTotal
	loops      *eventloop.Loops // read upstream connections; nil for none
	sharing    sharing
	distance   distance // of answers by lanes that owed nothing
	opening    distance // of what takes a new connection and questions by it
	homes      homes
	door       door
	judges     judges
	spares     spares
	numbers    numbers
	outage     outageCheck
	newest     newest
	goroutines sync.WaitGroup
	ctx        context.Context // ends with Close
	cancel     context.CancelFunc

	mu       sync.Mutex
	groups   map[poolKey]*laneGroup    // guarded by mu
	logins   map[upstream.Identity]int // guarded by mu; how many lanes each has: see loginOf
	refused  map[poolKey]time.Time     // guarded by mu; when Redis refused the login
	leaves   uint64                    // guarded by mu; how often a session has left a lane
	closed   bool                      // guarded by mu
	laneLost time.Time                 // guarded by mu; when a lane last ended by itself
	term     uint64                    // guarded by mu; see laneReadOnly
	termEnds int64                     // guarded by mu; when it may end, as monotonic.Now
}

// homes counts the homes of all sessions.
type homes struct {
	open   atomic.Int64
	opened atomic.Uint64 // for a session, be it a spare or a new connection
}

// poolKey is what the sessions on a lane have in common.
type poolKey struct {
	upstream.Identity
	// Scripts says that the sessions run scripts of their clients, which can take long. Meanwhile
	// Redis tells other connections that it is busy, but answers nothing on the same connection.
	Scripts bool
	Greets  bool // see Way
}

// laneGroup is the lanes of one poolKey.
type laneGroup struct {
	lanes   []*lane
	opening *opening // of another lane; nil for none
	alone   *alone   // the only session that has asked for a lane; nil for none, or several
}

// alone says of one session whether no other asks for a lane of a key.
type alone struct {
	key poolKey // written before is
	is  atomic.Bool
}

// opening is an attempt to open a lane.
type opening struct {
	ended chan struct{} // closed when it has
	err   error         // why it has failed, once it has ended
}

// NewPool returns a Pool without connections.
func NewPool(cfg Config) *Pool {
	p := &Pool{Config: cfg, spread: cfg.Upstream.IsCluster(), groups: map[poolKey]*laneGroup{},
		logins: map[upstream.Identity]int{}, refused: map[poolKey]time.Time{}}
	p.outage.turn, p.newest.lookedAt = make(chan struct{}, 1), map[bool]time.Time{}
	p.unread.limit, p.unread.dropped = cfg.MaxUnread, cfg.OnDropped
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// ReadIn makes loops read the connections that are opened from now on.
func (p *Pool) ReadIn(loops *eventloop.Loops) {
	p.loops = loops
	p.Upstream.ReadIn(loops)
}

// Suspend says whether Redis polices single connections, so that no lane can be used, and its
// timeout for idle ones, 0 for none.
func (p *Pool) Suspend(suspended bool, timeout time.Duration) {
	p.sharing.timeout.Store(int64(timeout))
	p.sharing.suspended.Store(suspended)
	p.expireSpares()
	if suspended { // the end of an idle lane would look like that of Redis
		p.retire(func(*lane) bool { return true })
	}
}

// join returns a lane for a session, which must leave it, or nil if the session has to use its
// home. It returns nil while a lane is being opened. It also does for a session that has a home, or
// runs scripts, while no other session has this key, because a lane would not help it. join never
// waits. (A lane helps a single session too if the upstream LearnsByLogin: the lane logs in as the
// session does.)
//
// The lane leads to the same server as the session's home, which must be asked question if that is
// not known yet. A session without a home goes where it went before, if it still can.
func (p *Pool) join(
	s *alone, key poolKey, at *whereabouts,
) (l *lane, question []byte, opening *opening) {
	served := at.home && !at.apart || key.Scripts // as well without a lane
	if served && s.is.Load() && s.key == key {
		return nil, nil, nil
	}
	p.lookForOwn(key.Identity)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, nil
	}
	p.cancelAloneLocked(s)
	group := p.groups[key]
	if group == nil {
		group = &laneGroup{}
		p.groups[key] = group
	}
	for _, old := range group.lanes {
		if old.users == 0 && !old.serves() { // Redis has frozen since its last session left
			p.closeLocked(old)
		}
	}
	l, question = group.leastUsed(at)
	if l == nil && !at.home {
		l, question = group.leastUsed(&whereabouts{})
	}
	switch {
	case l == nil && question != nil:
		return nil, question, nil
	case l == nil && at.home && p.newest.elsewhere(at):
		p.dropEmptyLocked(key, group)
		p.lookLocked(key.Identity)
		return nil, nil, nil
	case l != nil && (l.users < laneSessions || len(group.lanes) >= p.LanesPerKey || key.Greets):
	case group.opening != nil:
	case served && len(group.lanes) == 0 && group.alone == nil &&
		!p.Upstream.LearnsByLogin():
		group.alone, s.key = s, key
		s.is.Store(true)
		return nil, nil, nil
	default:
		p.startOpenLocked(key, group)
	}
	if l != nil {
		l.users++
	}
	return l, nil, group.opening
}

// cancelAlone records that a session does not ask for a lane any more.
func (p *Pool) cancelAlone(s *alone) {
	if s.is.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cancelAloneLocked(s)
	}
}

func (p *Pool) cancelAloneLocked(s *alone) {
	if s.is.Swap(false) {
		group := p.groups[s.key]
		group.alone = nil
		p.dropEmptyLocked(s.key, group)
	}
}

// leastUsed returns the lane with the fewest sessions, of those that serve and lead where at says.
// If there is none, but can be once the answer to question is known, it returns that.
func (g *laneGroup) leastUsed(at *whereabouts) (least *lane, question []byte) {
	for _, l := range g.lanes {
		if !l.serves() {
			continue
		}
		same, known := at.lanes(l)
		if !known {
			question = l.server.Question()
		} else if same && (least == nil || l.users < least.users) {
			least = l
		}
	}
	return least, question
}

// startOpenLocked begins to open a lane, unless Redis has just refused its login. mu is held.
func (p *Pool) startOpenLocked(key poolKey, group *laneGroup) {
	if at, ok := p.refused[key]; ok && time.Since(at) < refusalPause {
		p.dropEmptyLocked(key, group)
		return
	}
	if s := group.alone; s != nil {
		group.alone = nil
		s.is.Store(false) // it asks again, and finds the lane
	}
	group.opening = &opening{ended: make(chan struct{})}
	// Ends within DialTimeout, or at once when Close is called, which waits for it.
	p.goroutines.Go(func() { p.open(key, group) })
}

func (p *Pool) open(key poolKey, group *laneGroup) {
	ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
	defer cancel()
	term, begun := p.currentTerm(), time.Now()
	conn, server, err := p.Upstream.DialKnown(ctx, key.Identity)
	_, refused := errors.AsType[*upstream.Refused](err)
	if !refused { // otherwise the home tells
		p.OnDial(err)
	}
	if err == nil {
		p.opening.took(time.Since(begun))
		p.found(server)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.closed {
		defer upstream.CloseAndWait(conn)
		err = ErrClosed
	}
	group.opening.err = err
	close(group.opening.ended)
	group.opening = nil
	if err != nil {
		if refused {
			maps.DeleteFunc(p.refused, func(_ poolKey, at time.Time) bool {
				return time.Since(at) >= refusalPause
			})
			p.refused[key] = time.Now()
		}
		p.dropEmptyLocked(key, group)
		return
	}
	l := newLane(key, conn, p)
	l.server, l.term = server, term
	group.lanes = append(group.lanes, l)
	p.logins[loginOf(key.Identity)]++
	p.goroutines.Add(1)
	l.onEnd = func(err error) {
		if fault := panics.In(err); fault != nil { // in its connections to a cluster's nodes
			p.OnPanic(nil, fault)
		}
		p.remove(l)
		p.goroutines.Done()
	}
	l.onReadOnly = func() { p.laneReadOnly(l) }
	l.start() // until the upstream or the pool closes it; Close waits for it
}

// dropEmptyLocked forgets a group in which there is nothing. mu is held.
func (p *Pool) dropEmptyLocked(key poolKey, group *laneGroup) {
	if len(group.lanes) == 0 && group.opening == nil && group.alone == nil {
		delete(p.groups, key)
	}
}

// remove removes a lane that has ended from its group.
func (p *Pool) remove(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.unwanted {
		p.laneLost = time.Now()
	}
	group := p.groups[l.key]
	group.lanes = slices.DeleteFunc(group.lanes, func(other *lane) bool { return other == l })
	p.dropEmptyLocked(l.key, group)
	login := loginOf(l.key.Identity)
	if p.logins[login]--; p.logins[login] == 0 {
		delete(p.logins, login)
	}
}

// leave records that a session does not use its lane any more, and reports whether that has ended
// without the pool closing it. A lane without sessions is kept for a while, if there are not too
// many.
func (p *Pool) leave(l *lane) (broke bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaves++
	l.users--
	l.leftAt = p.leaves
	ended := l.lost()
	broke = ended && !l.unwanted
	if l.users > 0 || ended {
		return broke
	}
	if !l.retired.Load() {
		var idle int
		if l, idle = p.longestIdleLocked(); idle <= maxIdleLanes {
			return broke
		}
	}
	p.closeLocked(l)
	return broke
}

// closeLocked closes a lane that has no session. mu is held.
func (p *Pool) closeLocked(l *lane) {
	l.retired.Store(true)
	l.unwanted = true
	l.Close()
}

// longestIdleLocked returns the lane that has had no session for longest, and how many lanes have
// none. mu is held.
func (p *Pool) longestIdleLocked() (longest *lane, idle int) {
	for _, group := range p.groups {
		for _, l := range group.lanes {
			if l.users > 0 || l.retired.Load() {
				continue
			}
			idle++
			if longest == nil || l.leftAt < longest.leftAt {
				longest = l
			}
		}
	}
	return longest, idle
}

// Close ends all lanes, and returns when they have ended.
func (p *Pool) Close() {
	loopguard.MayWait()
	p.cancel()
	p.mu.Lock()
	p.closed = true
	var lanes []*lane
	for _, group := range p.groups {
		lanes = append(lanes, group.lanes...)
	}
	p.mu.Unlock()
	for _, l := range lanes {
		l.Close()
	}
	p.spares.close()
	p.judges.close()
	p.door.close()
	p.goroutines.Wait()
}

// patience is for how long a client waits for what takes a new connection to Redis, if it can do
// without. A server that is silent keeps nobody longer.
func (p *Pool) patience() time.Duration { return maxSilence + p.opening.get() }

// loginOf is an identity without what has nothing to do with its login.
func loginOf(id upstream.Identity) upstream.Identity {
	id.DB, id.Proto = 0, 0
	return id
}
