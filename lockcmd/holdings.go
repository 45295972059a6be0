package lockcmd

import (
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// holdings remembers the locks that were taken by way of this proxy until they are seen to end, so that it can tell how long
// they were held and which of them nobody released. It decides nothing: the upstream does.
type holdings struct {
	seed    maphash.Seed
	expired *atomic.Uint64
	shards  [holdingShards]holdingShard
}

// holding is one lock.
type holding struct {
	connection string
	client     string
	owner      string
	session    bool
	by         Session // whom to tell if the lock is taken away; nil unless it is a session lock
	token      int64
	since      time.Time
	until      time.Time
}

type holdingShard struct {
	mu    sync.Mutex
	locks map[lineKey]holding // guarded by mu
	swept int                 // guarded by mu; puts since the last sweep
}

const (
	holdingShards = 32
	// maxHoldings bounds a shard. Locks beyond are not followed.
	maxHoldings = 4096
	// holdingGrace is how long after its time a lock counts as expired: a release may be on its way.
	holdingGrace = time.Second
)

func newHoldings(expired *atomic.Uint64) *holdings {
	h := &holdings{seed: maphash.MakeSeed(), expired: expired}
	for i := range h.shards {
		h.shards[i].locks = map[lineKey]holding{}
	}
	return h
}

func (h *holdings) shard(at lineKey) *holdingShard {
	return &h.shards[maphash.String(h.seed, at.key)%holdingShards]
}

// put takes note that a lock was taken, or runs longer.
func (h *holdings) put(at lineKey, r request, token int64, asked time.Time) {
	s := h.shard(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	until, since := asked.Add(r.timeout), asked
	old, known := s.locks[at]
	switch {
	case known && old.token == token:
		since = old.since
		if old.until.After(until) {
			until = old.until
		}
	case known && asked.After(old.until):
		h.expired.Add(1)
	}
	if s.swept++; s.swept > maxHoldings/2 {
		h.sweepLocked(s, asked)
	}
	if !known && len(s.locks) >= maxHoldings {
		return
	}
	s.locks[at] = holding{connection: r.connection, client: r.client, owner: r.owner, session: r.session, token: token, since: since, until: until}
}

// extend takes note of how long a lock runs now.
func (h *holdings) extend(at lineKey, token string, until time.Time) {
	s := h.shard(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, ok := s.locks[at]; ok && strconv.FormatInt(held.token, 10) == token {
		held.until = until
		s.locks[at] = held
	}
}

// take forgets the lock that a release has ended, by its proof or its token, and returns it.
func (h *holdings) take(at lineKey, p proof, token int64) (held holding, ok bool) {
	s := h.shard(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok = s.locks[at]
	switch {
	case !ok:
	case p.kind == "token":
		ok = p.value == strconv.FormatInt(held.token, 10)
	case p.kind == "connection":
		ok = p.value == held.connection
	default:
		ok = token == held.token
	}
	if ok {
		delete(s.locks, at)
	}
	return held, ok
}

// keep says whom to tell if a session lock is taken away.
func (h *holdings) keep(at lineKey, token int64, by Session) {
	s := h.shard(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, ok := s.locks[at]; ok && held.token == token {
		held.by = by
		s.locks[at] = held
	}
}

// drop forgets a lock that was lost.
func (h *holdings) drop(at lineKey, token int64) {
	s := h.shard(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[at].token == token {
		delete(s.locks, at)
	}
}

// sweep counts the locks whose time has passed, and returns how many are left.
func (h *holdings) sweep(now time.Time) (left int) {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		h.sweepLocked(s, now)
		left += len(s.locks)
		s.mu.Unlock()
	}
	return left
}

// sweepLocked sweeps one shard, whose mu is held.
func (h *holdings) sweepLocked(s *holdingShard, now time.Time) {
	s.swept = 0
	for at, held := range s.locks {
		if now.After(held.until.Add(holdingGrace)) {
			delete(s.locks, at)
			h.expired.Add(1)
		}
	}
}

// some calls visit for up to limit locks.
func (h *holdings) some(limit int, visit func(at lineKey, held holding)) {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for at, held := range s.locks {
			if limit--; limit < 0 {
				break
			}
			visit(at, held)
		}
		s.mu.Unlock()
	}
}
