package passthrough

import (
	"context"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/eventloop"
)

const (
	// laneSessions is how many sessions use a lane before a further one is opened, if there may be.
	laneSessions = 64
	// maxIdleLanes is how many lanes are kept that no session uses.
	maxIdleLanes = 8
)

// Lanes are the upstream connections that sessions share. Make them with NewLanes; Close ends them. Safe for concurrent use.
type Lanes struct {
	upstream    *Upstream
	perIdentity int          // 0: nothing is shared
	stayAwake   atomic.Int64 // how long a spare may be silent, ns; 0 for any time
	dialTimeout time.Duration
	unread      Unread
	loops       *eventloop.Loops // read what it has sent by lanes; nil if there are none

	pause   pause
	pinned  atomic.Int64
	running sync.WaitGroup
	ctx     context.Context // ends when Close is called
	cancel  context.CancelFunc

	mu     sync.Mutex
	sets   map[laneKind]*laneSet // guarded by mu
	groups map[login]*group      // guarded by mu
	idle   int                   // guarded by mu; spares of all groups
	// maxIdle is how many of these there may be, and allowedIdle how many because of what the upstream allows.
	maxIdle, allowedIdle int // guarded by mu
	// reserve is how many there should be of each login, see wanted.
	reserve int         // guarded by mu
	expiry  *time.Timer // guarded by mu; for spares that are more than the reserve, nil if there are none
	// expires is when the spare was left that expiry is for.
	expires time.Time // guarded by mu
	clock   uint64    // guarded by mu; counts leaves
	closed  bool      // guarded by mu
}

// laneKind is what the sessions that share a lane have in common.
type laneKind struct {
	Identity
	// Scripts says that they run scripts of their clients, which may take long: while one does, the upstream answers everybody else that
	// it is busy, but those who stand behind it on the same connection not at all.
	Scripts bool
}

// laneSet is the lanes of one kind.
type laneSet struct {
	lanes   []*lane
	opening *opening // of a further one; nil if none is under way
}

// opening is a lane being opened.
type opening struct {
	done chan struct{}
	err  error // once done is closed
}

// NewLanes returns the shared connections to upstream, at most perIdentity for each identity. With 0 every session has a connection
// of its own. reserve is how many idle connections of each user and password are kept for the sessions that share, beyond as many as have
// had one of their own at once, and at most one for each of these; there are none if perIdentity is 0 or the upstream is a cluster, whose connections are many. dialTimeout bounds the opening of one.
func NewLanes(upstream *Upstream, perIdentity, reserve int, dialTimeout time.Duration) *Lanes {
	ls := &Lanes{upstream: upstream, perIdentity: perIdentity, dialTimeout: dialTimeout, allowedIdle: math.MaxInt}
	ls.sets, ls.groups = map[laneKind]*laneSet{}, map[login]*group{}
	ls.SetReserve(reserve)
	ls.ctx, ls.cancel = context.WithCancel(context.Background())
	return ls
}

// BoundUnread bounds what clients leave unread, before there are any: limit is for all together, in bytes, 0 for none. dropped, if it isn't nil,
// is told of each client that is closed because of this or another bound; it must not wait.
func (ls *Lanes) BoundUnread(limit int64, dropped func(client net.Addr, err error)) {
	ls.unread.Limit, ls.unread.Dropped = limit, dropped
}

// ReadBy has loops read lanes, before there are any.
func (ls *Lanes) ReadBy(loops *eventloop.Loops) { ls.loops = loops }

// join finds a lane for a session, opening one if needed, which connects says. The session must leave it.
func (ls *Lanes) join(ctx context.Context, p *Pipe, kind laneKind) (l *lane, connects bool, err error) {
	for {
		ls.mu.Lock()
		g := ls.enterLocked(p, kind.Identity)
		set := ls.sets[kind]
		if set == nil {
			set = &laneSet{}
			ls.sets[kind] = set
		}
		l = set.leastUsed()
		if l != nil && (l.users < laneSessions || len(set.lanes) >= ls.perIdentity || set.opening != nil) {
			l.users++
			if ls.loggedIn(kind.Identity) {
				l.loggedIn[p] = struct{}{}
			}
			ls.topUpLocked(g)
			ls.mu.Unlock()
			return l, connects, nil
		}
		if ls.closed {
			ls.mu.Unlock()
			return nil, false, ErrClosed
		}
		o := set.opening
		if o == nil {
			o = &opening{done: make(chan struct{})}
			set.opening = o
			ls.running.Add(1)
			go func() { // ends within dialTimeout, or at once when Close is called, which waits for it
				defer ls.running.Done()
				ls.open(kind, set, o)
			}()
		}
		ls.mu.Unlock()
		if l != nil {
			continue // there is one to use until the further one is open
		}
		select {
		case <-o.done:
			if o.err != nil {
				return nil, true, o.err
			}
			connects = true
		case <-ctx.Done():
			return nil, true, &Error{Addr: ls.upstream.Addr, Err: context.Cause(ctx)}
		}
	}
}

// leastUsed is the lane that the fewest sessions use, of those that serve, or nil.
func (s *laneSet) leastUsed() (least *lane) {
	for _, l := range s.lanes {
		if l.serves() && (least == nil || l.users < least.users) {
			least = l
		}
	}
	return least
}

func (ls *Lanes) open(kind laneKind, set *laneSet, o *opening) {
	ctx, cancel := context.WithTimeout(ls.ctx, ls.dialTimeout)
	defer cancel()
	conn, _, err := ls.obtain(ctx, Setup{Identity: kind.Identity}, nil)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if err == nil && ls.closed {
		conn.Close()
		err = ErrClosed
	}
	set.opening = nil
	o.err = err
	close(o.done)
	if err != nil {
		ls.forgetLocked(kind, set)
		return
	}
	l := newLane(kind, conn)
	l.seat = ls.loops.NewSeat(l)
	set.lanes = append(set.lanes, l)
	ls.sets[kind] = set
	ls.groupLocked(kind.Identity).lanes++
	ls.running.Add(2)
	go func() { // ends when conn does, which is when the upstream or nobody wants it any more; Close waits for it
		defer ls.running.Done()
		l.read()
		ls.remove(l)
	}()
	go func() { // ends when the reader does
		defer ls.running.Done()
		l.write()
	}()
}

// forgetLocked drops a set of nothing. mu is held.
func (ls *Lanes) forgetLocked(kind laneKind, set *laneSet) {
	if len(set.lanes) == 0 && set.opening == nil && ls.sets[kind] == set {
		delete(ls.sets, kind)
	}
}

// loggedIn reports whether a session of this identity has logged in itself. Its login ends with the connection: that it would be let
// in once more is not for the proxy to say.
func (ls *Lanes) loggedIn(id Identity) bool {
	initial := ls.upstream.Initial
	return id.LoggedIn && (id.User != initial.User || id.Password != initial.Password)
}

// remove takes a lane that has ended out of its set, and ends the sessions whose login it was.
func (ls *Lanes) remove(l *lane) {
	ls.mu.Lock()
	ended := l.loggedIn
	l.loggedIn = nil
	ls.removeLocked(l)
	g := ls.groupLocked(l.kind.Identity)
	g.lanes--
	var bereaved map[*Pipe]struct{}
	if !l.unwanted {
		bereaved = ls.bereavedLocked(g)
	}
	ls.dropLocked(g)
	ls.mu.Unlock()
	for p := range ended {
		p.loginLost()
	}
	for p := range bereaved {
		p.restLost()
	}
}

func (ls *Lanes) removeLocked(l *lane) {
	set := ls.sets[l.kind]
	if set == nil {
		return
	}
	for i, other := range set.lanes {
		if other == l {
			set.lanes = append(set.lanes[:i:i], set.lanes[i+1:]...)
			break
		}
	}
	ls.forgetLocked(l.kind, set)
}

// leave says that a session doesn't use its lane any more. One that nobody uses is kept for a while, if there aren't too many.
func (ls *Lanes) leave(l *lane, p *Pipe) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(l.loggedIn, p)
	ls.clock++
	l.users--
	l.used = ls.clock
	if l.users > 0 {
		return
	}
	if g := ls.groups[loginOf(l.kind.Identity)]; g != nil && len(g.line) > 0 {
		g.serveLocked(nil) // who waits may have the connection
	}
	if l.retired.Load() {
		ls.endLocked(l)
		return
	}
	var oldest *lane
	idle := 0
	for _, set := range ls.sets {
		for _, l := range set.lanes {
			if l.users > 0 || l.retired.Load() {
				continue
			}
			idle++
			if oldest == nil || l.used < oldest.used {
				oldest = l
			}
		}
	}
	if idle > maxIdleLanes {
		oldest.retired.Store(true)
		ls.endLocked(oldest)
	}
}

// endLocked ends a lane that nobody uses nor will. Its connection goes to its login's reserve if that is short of one. mu is held.
func (ls *Lanes) endLocked(l *lane) {
	l.unwanted = true
	g := ls.groups[loginOf(l.kind.Identity)]
	if ls.closed || g == nil || len(g.idle) >= ls.worthKeeping(g) {
		l.close()
		return
	}
	ls.running.Add(1)
	go func() { // ends when the lane has, which surrender makes sure of; Close waits for it
		defer ls.running.Done()
		if l.surrender() {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			ls.keepLocked(ls.groupLocked(l.kind.Identity), l.conn, Setup{Identity: l.kind.Identity})
		}
	}()
}

// broke reports whether a lane's connection has ended, and not because the proxy itself had no use for it any more.
func (ls *Lanes) broke(l *lane) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return l.lost() && !l.unwanted
}

// Stats counts connections to the upstream.
type Stats struct {
	Lanes  int // shared
	Shared int // sessions that use one of these
	Pinned int // connections that are one session's own
	Spares int // kept for sessions that need one of their own
}

// Stats returns the numbers of this moment.
func (ls *Lanes) Stats() (s Stats) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, set := range ls.sets {
		s.Lanes += len(set.lanes)
		for _, l := range set.lanes {
			s.Shared += l.users
		}
	}
	s.Spares, s.Pinned = ls.idle, int(ls.pinned.Load())
	return s
}

// Close ends all of them, and returns when they have ended.
func (ls *Lanes) Close() {
	ls.cancel()
	ls.pause.close()
	ls.mu.Lock()
	ls.closed = true
	if ls.expiry != nil {
		ls.expiry.Stop()
	}
	var lanes []*lane
	var conns []net.Conn
	for _, set := range ls.sets {
		lanes = append(lanes, set.lanes...)
	}
	for _, g := range ls.groups {
		for _, s := range g.idle {
			conns = append(conns, s.conn)
		}
	}
	ls.mu.Unlock()
	for _, l := range lanes {
		l.close()
	}
	for _, conn := range conns {
		conn.Close()
	}
	ls.running.Wait()
}
