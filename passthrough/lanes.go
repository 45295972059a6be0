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

// Lanes are the upstream connections that sessions share, and what all sessions' homes have in
// common. Make them with NewLanes; Close ends them. Safe for concurrent use.
type Lanes struct {
	upstream    *upstream.Upstream
	perIdentity int           // 0: nothing is shared
	homeIdle    time.Duration // see CloseIdleHomes
	dialTimeout time.Duration
	connected   func(err error) // nil is nobody; see TellConnects
	unread      Unread
	loops       *eventloop.Loops // read what comes by lanes; nil if there are none

	suspended atomic.Bool  // nobody may share: see Suspend
	paused    atomic.Int64 // until when the upstream holds back writes, ns since began; 0 if it doesn't
	began     time.Time
	homes     atomic.Int64 // that are open
	serving   serving
	running   sync.WaitGroup
	ctx       context.Context // ends when Close is called
	cancel    context.CancelFunc

	mu      sync.Mutex
	sets    map[laneKind]*laneSet // guarded by mu
	refused map[laneKind]refusal  // guarded by mu; none is older than refusalPause when one is added
	clock   uint64                // guarded by mu; counts leaves
	closed  bool                  // guarded by mu
	// laneLost is when a lane ended last that the proxy itself had not ended.
	laneLost time.Time // guarded by mu
}

// laneKind is what the sessions that share a lane have in common.
type laneKind struct {
	upstream.Identity
	// Scripts says that they run scripts of their clients, which may take long. While one does, the
	// upstream tells everybody else that it is busy, but does not answer those behind it on the
	// same connection at all.
	Scripts bool
}

// laneSet is the lanes of one kind.
type laneSet struct {
	lanes   []*lane
	opening chan struct{} // closed when a further one is open, or can't be; nil if none is under way
	alone   *laneWay      // the only session that asks for a lane so far; nil if none does, or others do too
}

// refusal is the upstream's answer to a login that a lane tried.
type refusal struct {
	reply *upstream.Refused
	at    time.Time
}

// NewLanes returns the shared connections to up, at most perIdentity for each identity. With 0
// nothing is shared. dialTimeout bounds the opening of one.
func NewLanes(up *upstream.Upstream, perIdentity int, dialTimeout time.Duration) *Lanes {
	ls := &Lanes{upstream: up, perIdentity: perIdentity, dialTimeout: dialTimeout, began: time.Now()}
	ls.sets, ls.refused = map[laneKind]*laneSet{}, map[laneKind]refusal{}
	ls.ctx, ls.cancel = context.WithCancel(context.Background())
	return ls
}

// BoundUnread bounds what clients leave unread, before there are any: limit is for all together, in
// bytes, 0 for none. dropped, if it isn't nil, is told of each client that is closed because of
// this or another bound; it must not wait.
func (ls *Lanes) BoundUnread(limit int64, dropped func(client net.Addr, err error)) {
	ls.unread.Limit, ls.unread.Dropped = limit, dropped
}

// TellConnects has told be called whenever a home was opened, or could not be, before there are
// any.
func (ls *Lanes) TellConnects(told func(err error)) { ls.connected = told }

// ReadBy has loops read lanes, before there are any.
func (ls *Lanes) ReadBy(loops *eventloop.Loops) { ls.loops = loops }

// CloseIdleHomes has each home closed, before there are any, that was not needed for d and is as a
// new connection would be. It is dialled again on demand. 0 keeps all of them.
func (ls *Lanes) CloseIdleHomes(d time.Duration) { ls.homeIdle = d }

// Suspend says whether the upstream polices single connections, so that nobody may share one.
func (ls *Lanes) Suspend(suspended bool) { ls.suspended.Store(suspended) }

// pause says that the upstream holds back writes for d from now on; 0 ends that. Nobody shares
// meanwhile: a write that is held back would hold up what stands behind it.
func (ls *Lanes) pause(d time.Duration) {
	until := int64(0)
	if d > 0 {
		until = int64(time.Since(ls.began) + d)
	}
	ls.paused.Store(until)
}

// maySessionsShare reports whether sessions may share at this moment.
func (ls *Lanes) maySessionsShare() bool {
	if ls.perIdentity == 0 || ls.suspended.Load() {
		return false
	}
	until := ls.paused.Load()
	return until == 0 || int64(time.Since(ls.began)) > until
}

// join returns a lane for a session, which must leave it, or nil if the session is to use its home:
// as long as it is the only one of this kind, to which a lane would be of no use, and until a lane
// is open, which opening tells. It never waits. (To a single client of a cluster a lane is of use:
// it is opened by a login that may ask who serves what.)
func (ls *Lanes) join(w *laneWay, kind laneKind) (l *lane, opening <-chan struct{}) {
	if w.alone.Load() && w.aloneIn == kind {
		return nil, nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil, nil
	}
	ls.withdrawLocked(w)
	set := ls.sets[kind]
	if set == nil {
		set = &laneSet{}
		ls.sets[kind] = set
	}
	l = set.leastUsed()
	switch {
	case l != nil && (l.users < laneSessions || len(set.lanes) >= ls.perIdentity):
	case set.opening != nil:
	case l == nil && len(set.lanes) == 0 && set.alone == nil && !ls.upstream.IsCluster():
		set.alone, w.aloneIn = w, kind
		w.alone.Store(true)
		return nil, nil
	default:
		ls.beginOpenLocked(kind, set)
	}
	if l != nil {
		l.users++
	}
	return l, set.opening
}

// withdrawLocked says that w does not ask for a lane of its kind any more. mu is held.
func (ls *Lanes) withdrawLocked(w *laneWay) {
	if !w.alone.Swap(false) {
		return
	}
	if set := ls.sets[w.aloneIn]; set != nil && set.alone == w {
		set.alone = nil
		ls.forgetLocked(w.aloneIn, set)
	}
}

// withdraw is withdrawLocked for a session that ends.
func (ls *Lanes) withdraw(w *laneWay) {
	if w.alone.Load() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		ls.withdrawLocked(w)
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

// beginOpenLocked has a lane opened, unless the upstream has just refused its login. mu is held.
func (ls *Lanes) beginOpenLocked(kind laneKind, set *laneSet) {
	if was, ok := ls.refused[kind]; ok && time.Since(was.at) < refusalPause {
		ls.forgetLocked(kind, set)
		return
	}
	if w := set.alone; w != nil {
		set.alone = nil
		w.alone.Store(false) // it asks again, and finds the lane
	}
	set.opening = make(chan struct{})
	ls.running.Add(1)
	go func() { // ends within dialTimeout, or at once when Close is called, which waits for it
		defer ls.running.Done()
		ls.open(kind, set)
	}()
}

func (ls *Lanes) open(kind laneKind, set *laneSet) {
	ctx, cancel := context.WithTimeout(ls.ctx, ls.dialTimeout)
	defer cancel()
	conn, err := ls.upstream.DialAdmitted(ctx, kind.Identity)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if err == nil && ls.closed {
		conn.Close()
		err = ErrClosed
	}
	close(set.opening)
	set.opening = nil
	if err != nil {
		ls.noteRefusedLocked(kind, err)
		ls.forgetLocked(kind, set)
		return
	}
	l := newLane(kind, conn)
	if l.socket != nil {
		l.reg = ls.loops.NewRegistration(l, l.socket.Raw())
	}
	set.lanes = append(set.lanes, l)
	ls.sets[kind] = set
	ls.running.Add(1)
	l.gone = func() {
		ls.remove(l)
		ls.running.Done()
	}
	go func() { // ends when conn does, which is when the upstream or nobody wants it; Close waits for it
		if !l.park() {
			l.Resume()
		}
	}()
}

// noteRefusedLocked keeps a refusal of the login for refusalPause. mu is held.
func (ls *Lanes) noteRefusedLocked(kind laneKind, err error) {
	var reply *upstream.Refused
	if !errors.As(err, &reply) {
		return
	}
	maps.DeleteFunc(ls.refused, func(_ laneKind, was refusal) bool { return time.Since(was.at) >= refusalPause })
	ls.refused[kind] = refusal{reply, time.Now()}
}

// forgetLocked drops a set of nothing. mu is held.
func (ls *Lanes) forgetLocked(kind laneKind, set *laneSet) {
	if len(set.lanes) == 0 && set.opening == nil && set.alone == nil && ls.sets[kind] == set {
		delete(ls.sets, kind)
	}
}

// remove takes a lane that has ended out of its set.
func (ls *Lanes) remove(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !l.unwanted {
		ls.laneLost = time.Now()
	}
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

// leave says that a session doesn't use its lane any more. One that nobody uses is kept for a
// while, if there aren't too many.
func (ls *Lanes) leave(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.clock++
	l.users--
	l.used = ls.clock
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
		oldest.unwanted = true
		oldest.close()
	}
}

// broke reports whether a lane's connection has ended, and not because the proxy itself had no use
// for it any more.
func (ls *Lanes) broke(l *lane) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return l.lost() && !l.unwanted
}

// Stats counts connections to the upstream.
type Stats struct {
	Lanes  int // shared
	Shared int // sessions that use one of these
	Homes  int // sessions' own
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
	s.Homes = int(ls.homes.Load())
	return s
}

// Close ends all of them, and returns when they have ended.
func (ls *Lanes) Close() {
	ls.cancel()
	ls.mu.Lock()
	ls.closed = true
	var lanes []*lane
	for _, set := range ls.sets {
		lanes = append(lanes, set.lanes...)
	}
	ls.mu.Unlock()
	for _, l := range lanes {
		l.close()
	}
	ls.running.Wait()
}
