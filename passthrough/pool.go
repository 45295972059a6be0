package passthrough

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/upstream"
)

const (
	// laneSessions is how many sessions use a lane before a further one is opened, if there may be.
	laneSessions = 64
	// maxIdleLanes is how many lanes are kept that no session uses.
	maxIdleLanes = 8
	// refusalPause is how long after a refused login no further lane of that login is tried.
	refusalPause = time.Second
)

// Pool are the upstream connections that sessions share, and what all sessions' homes have in
// common. Make them with NewLanes; Close ends them. Safe for concurrent use.
type Pool struct {
	upstream    *upstream.Upstream
	lanesPerKey int           // 0: nothing is shared
	homeIdle    time.Duration // see CloseIdleHomes
	dialTimeout time.Duration
	onHomeDial  func(err error) // nil is nobody; see TellConnects
	unread      Unread
	loops       *eventloop.Loops // read what comes by lanes; nil if there are none

	suspended atomic.Bool  // nobody may share: see Suspend
	paused    atomic.Int64 // until when the upstream holds back writes, ns since began; 0 if it doesn't
	began     time.Time
	homes     atomic.Int64 // that are open
	outage    outageCheck
	running   sync.WaitGroup
	ctx       context.Context // ends when Close is called
	cancel    context.CancelFunc

	mu      sync.Mutex
	groups  map[poolKey]*laneGroup // guarded by mu
	refused map[poolKey]refusal    // guarded by mu; none is older than refusalPause when one is added
	leaves  uint64                 // guarded by mu; counts leaves
	closed  bool                   // guarded by mu
	// laneLost is when a lane ended last that the proxy itself had not ended.
	laneLost time.Time // guarded by mu
}

// laneKind is what the sessions that share a lane have in common.
type poolKey struct {
	upstream.Identity
	// Scripts says that they run scripts of their clients, which may take long. While one does, the
	// upstream tells everybody else that it is busy, but does not answer those behind it on the
	// same connection at all.
	Scripts bool
}

// laneSet is the lanes of one kind.
type laneGroup struct {
	lanes   []*lane
	opening chan struct{} // closed when a further one is open, or can't be; nil if none is under way
	alone   *laneSide     // the only session that asks for a lane so far; nil if none does, or others do too
}

// refusal is the upstream's answer to a login that a lane tried.
type refusal struct {
	reply *upstream.Refused
	at    time.Time
}

// NewLanes returns the shared connections to up, at most perIdentity for each identity. With 0
// nothing is shared. dialTimeout bounds the opening of one.
func NewPool(up *upstream.Upstream, perIdentity int, dialTimeout time.Duration) *Pool {
	ls := &Pool{upstream: up, lanesPerKey: perIdentity, dialTimeout: dialTimeout, began: time.Now()}
	ls.groups, ls.refused = map[poolKey]*laneGroup{}, map[poolKey]refusal{}
	ls.ctx, ls.cancel = context.WithCancel(context.Background())
	return ls
}

// BoundUnread bounds what clients leave unread, before there are any: limit is for all together, in
// bytes, 0 for none. dropped, if it isn't nil, is told of each client that is closed because of
// this or another bound; it must not wait.
func (p *Pool) LimitUnread(limit int64, dropped func(client net.Addr, err error)) {
	p.unread.Limit, p.unread.Dropped = limit, dropped
}

// TellConnects has told be called whenever a home was opened, or could not be, before there are
// any.
func (p *Pool) OnHomeDial(told func(err error)) { p.onHomeDial = told }

// ReadBy has loops read lanes, before there are any.
func (p *Pool) ReadIn(loops *eventloop.Loops) { p.loops = loops }

// CloseIdleHomes has each home closed, before there are any, that was not needed for d and is as a
// new connection would be. It is dialled again on demand. 0 keeps all of them.
func (p *Pool) CloseIdleHomes(d time.Duration) { p.homeIdle = d }

// Suspend says whether the upstream polices single connections, so that nobody may share one.
func (p *Pool) Suspend(suspended bool) { p.suspended.Store(suspended) }

// pause says that the upstream holds back writes for d from now on; 0 ends that. Nobody shares
// meanwhile: a write that is held back would hold up what stands behind it.
func (p *Pool) pause(d time.Duration) {
	until := int64(0)
	if d > 0 {
		until = int64(time.Since(p.began) + d)
	}
	p.paused.Store(until)
}

// maySessionsShare reports whether sessions may share at this moment.
func (p *Pool) maySessionsShare() bool {
	if p.lanesPerKey == 0 || p.suspended.Load() {
		return false
	}
	until := p.paused.Load()
	return until == 0 || int64(time.Since(p.began)) > until
}

// join returns a lane for a session, which must leave it, or nil if the session is to use its home:
// as long as it is the only one of this kind, to which a lane would be of no use, and until a lane
// is open, which opening tells. It never waits. (To a single client of a cluster a lane is of use:
// it is opened by a login that may ask who serves what.)
func (p *Pool) join(w *laneSide, kind poolKey) (l *lane, opening <-chan struct{}) {
	if w.alone.Load() && w.aloneIn == kind {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil
	}
	p.cancelAloneLocked(w)
	set := p.groups[kind]
	if set == nil {
		set = &laneGroup{}
		p.groups[kind] = set
	}
	l = set.leastUsed()
	switch {
	case l != nil && (l.users < laneSessions || len(set.lanes) >= p.lanesPerKey):
	case set.opening != nil:
	case l == nil && len(set.lanes) == 0 && set.alone == nil && !p.upstream.IsCluster():
		set.alone, w.aloneIn = w, kind
		w.alone.Store(true)
		return nil, nil
	default:
		p.startOpenLocked(kind, set)
	}
	if l != nil {
		l.users++
	}
	return l, set.opening
}

// withdrawLocked says that w does not ask for a lane of its kind any more. mu is held.
func (p *Pool) cancelAloneLocked(w *laneSide) {
	if !w.alone.Swap(false) {
		return
	}
	if set := p.groups[w.aloneIn]; set != nil && set.alone == w {
		set.alone = nil
		p.dropEmptyLocked(w.aloneIn, set)
	}
}

// withdraw is withdrawLocked for a session that ends.
func (p *Pool) cancelAlone(w *laneSide) {
	if w.alone.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cancelAloneLocked(w)
	}
}

// leastUsed is the lane that the fewest sessions use, of those that serve, or nil.
func (s *laneGroup) leastUsed() (least *lane) {
	for _, l := range s.lanes {
		if l.serves() && (least == nil || l.users < least.users) {
			least = l
		}
	}
	return least
}

// beginOpenLocked has a lane opened, unless the upstream has just refused its login. mu is held.
func (p *Pool) startOpenLocked(kind poolKey, set *laneGroup) {
	if was, ok := p.refused[kind]; ok && time.Since(was.at) < refusalPause {
		p.dropEmptyLocked(kind, set)
		return
	}
	if w := set.alone; w != nil {
		set.alone = nil
		w.alone.Store(false) // it asks again, and finds the lane
	}
	set.opening = make(chan struct{})
	p.running.Add(1)
	go func() { // ends within dialTimeout, or at once when Close is called, which waits for it
		defer p.running.Done()
		p.open(kind, set)
	}()
}

func (p *Pool) open(kind poolKey, set *laneGroup) {
	ctx, cancel := context.WithTimeout(p.ctx, p.dialTimeout)
	defer cancel()
	conn, err := p.upstream.DialAdmitted(ctx, kind.Identity)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.closed {
		conn.Close()
		err = ErrClosed
	}
	close(set.opening)
	set.opening = nil
	if err != nil {
		p.noteRefusedLocked(kind, err)
		p.dropEmptyLocked(kind, set)
		return
	}
	l := newLane(kind, conn, p.loops)
	set.lanes = append(set.lanes, l)
	p.groups[kind] = set
	p.running.Add(1)
	l.onEnd = func() {
		p.remove(l)
		p.running.Done()
	}
	l.start() // until the upstream or the pool closes it; Close waits for it
}

// noteRefusedLocked keeps a refusal of the login for refusalPause. mu is held.
func (p *Pool) noteRefusedLocked(kind poolKey, err error) {
	var reply *upstream.Refused
	if !errors.As(err, &reply) {
		return
	}
	maps.DeleteFunc(p.refused, func(_ poolKey, was refusal) bool { return time.Since(was.at) >= refusalPause })
	p.refused[kind] = refusal{reply, time.Now()}
}

// forgetLocked drops a set of nothing. mu is held.
func (p *Pool) dropEmptyLocked(kind poolKey, set *laneGroup) {
	if len(set.lanes) == 0 && set.opening == nil && set.alone == nil && p.groups[kind] == set {
		delete(p.groups, kind)
	}
}

// remove takes a lane that has ended out of its set.
func (p *Pool) remove(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.unwanted {
		p.laneLost = time.Now()
	}
	set := p.groups[l.key]
	if set == nil {
		return
	}
	for i, other := range set.lanes {
		if other == l {
			set.lanes = append(set.lanes[:i:i], set.lanes[i+1:]...)
			break
		}
	}
	p.dropEmptyLocked(l.key, set)
}

// leave says that a session doesn't use its lane any more. One that nobody uses is kept for a
// while, if there aren't too many.
func (p *Pool) leave(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaves++
	l.users--
	l.leftAt = p.leaves
	if l.users > 0 || l.lost() {
		return
	}
	if l.retired.Load() {
		l.unwanted = true
		l.close()
		return
	}
	var oldest *lane
	idle := 0
	for _, set := range p.groups {
		for _, l := range set.lanes {
			if l.users > 0 || l.retired.Load() {
				continue
			}
			idle++
			if oldest == nil || l.leftAt < oldest.leftAt {
				oldest = l
			}
		}
	}
	if idle > maxIdleLanes {
		oldest.retired.Store(true)
		oldest.unwanted = true
		oldest.close()
	}
}

// broke reports whether a lane's connection has ended, and not because the proxy itself had no use
// for it any more.
func (p *Pool) laneBroke(l *lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.lost() && !l.unwanted
}

// Stats counts connections to the upstream.
type Stats struct {
	Lanes  int // shared
	Shared int // sessions that use one of these
	Homes  int // sessions' own
}

// Stats returns the numbers of this moment.
func (p *Pool) Stats() (s Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, set := range p.groups {
		s.Lanes += len(set.lanes)
		for _, l := range set.lanes {
			s.Shared += l.users
		}
	}
	s.Homes = int(p.homes.Load())
	return s
}

// Close ends all of them, and returns when they have ended.
func (p *Pool) Close() {
	p.cancel()
	p.mu.Lock()
	p.closed = true
	var lanes []*lane
	for _, set := range p.groups {
		lanes = append(lanes, set.lanes...)
	}
	p.mu.Unlock()
	for _, l := range lanes {
		l.close()
	}
	p.running.Wait()
}
