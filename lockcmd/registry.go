package lockcmd

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// registry has the locks that were taken through this proxy, until their ends are known. It shows
// operators how long locks were held and which of them nobody released, and sessions that a lock
// was taken away. It decides nothing: the upstream does.
type registry struct {
	seed      maphash.Seed
	onExpired func(*heldLock) // called for each lock that has expired, with its shard locked
	shards    [registryShards]registryShard
}

type registryShard struct {
	mu    sync.Mutex
	locks map[heldID]*heldLock // guarded by mu
	puts  int                  // guarded by mu; since the last sweep

	shared int // guarded by mu; how many of locks are shared
}

const (
	registryShards = 32 // so that a sweep holds up few
	// maxRegistered bounds a shard. Locks beyond are not registered, except those of sessions.
	maxRegistered = 4096
	// expiryGrace is how long after its timeout a lock counts as expired: a release may be on its
	// way.
	expiryGrace = time.Second
)

func newRegistry(onExpired func(*heldLock)) *registry {
	r := &registry{seed: maphash.MakeSeed(), onExpired: onExpired}
	for i := range r.shards {
		r.shards[i].locks = map[heldID]*heldLock{}
	}
	return r
}

func (r *registry) hash(key string) uint64 { return maphash.String(r.seed, key) }

// lock locks the shard of a lock and returns it.
func (r *registry) lock(id names.Lock) *registryShard {
	s := &r.shards[r.hash(id.Key)%registryShards]
	s.mu.Lock()
	return s
}

// put registers a lock that was taken, or that its owner was given again. It returns the sessions
// of an earlier holder that has not released it: they have probably lost it.
func (r *registry) put(lock *heldLock) (earlier []*heldLock) {
	id, now := lock.heldID(), lock.since
	s := r.lock(id.Lock)
	defer s.mu.Unlock()
	old := s.locks[id]
	switch {
	case old == nil:
	case old.token == lock.token:
		lock.since = old.since
		lock.others = old.sessionsExcept(lock.Connection)
		if lock.by == nil { // LOCK does not shorten it; a session lock is renewed long before
			lock.until.Store(max(lock.until.Load(), old.until.Load()))
		}
	default:
		if now > old.until.Load() {
			r.onExpired(old)
		}
		earlier = old.sessionsExcept(lock.Connection)
	}
	if s.puts++; s.puts > maxRegistered/2 {
		r.sweepLocked(s, now)
	}
	if old != nil || lock.by != nil || len(s.locks) < maxRegistered {
		if old == nil && lock.Shared {
			s.shared++
		}
		s.locks[id] = lock
	}
	return earlier
}

// sessionsExcept takes the sessions that have the lock out of it, except that of one connection.
func (lock *heldLock) sessionsExcept(connection string) []*heldLock {
	list := lock.appendSessions(nil)
	lock.others = nil
	return slices.DeleteFunc(list, func(other *heldLock) bool {
		return other.Connection == connection
	})
}

// sessionsOf are the sessions that have a lock.
func (r *registry) sessionsOf(id names.Lock) (list []*heldLock) {
	s := r.lock(id)
	defer s.mu.Unlock()
	s.visit(id, func(lock *heldLock) { list = lock.appendSessions(list) })
	return list
}

// visit calls f for the holders of a lock that are registered. mu is held.
func (s *registryShard) visit(id names.Lock, f func(*heldLock)) {
	if lock := s.locks[heldID{id, 0}]; lock != nil {
		f(lock)
	}
	if s.shared == 0 {
		return
	}
	for held, lock := range s.locks {
		if held.Lock == id && held.token != 0 {
			f(lock)
		}
	}
}

// has reports whether a lock is registered and has not expired.
func (r *registry) has(id names.Lock) bool {
	s := r.lock(id)
	defer s.mu.Unlock()
	live := false
	s.visit(id, func(lock *heldLock) { live = live || lock.until.Load() > monotonic.Now() })
	return live
}

// allSessions are the sessions of all locks.
func (r *registry) allSessions() (list []*heldLock) {
	r.visitAll(func(lock *heldLock) { list = lock.appendSessions(list) })
	return list
}

// appendSessions appends the sessions that have the lock.
func (lock *heldLock) appendSessions(list []*heldLock) []*heldLock {
	list = append(list, lock.others...)
	if lock.by != nil {
		list = append(list, lock)
	}
	return list
}

// leave removes a session from a lock: its connection has gone. Another connection of its owner may
// still have the lock.
func (r *registry) leave(lock *heldLock) {
	s := r.lock(lock.id())
	defer s.mu.Unlock()
	if last := s.locks[lock.heldID()]; last != nil && last.token == lock.token {
		s.leave(lock, last)
	}
}

// lose removes a session from a lock that it has lost, and reports whether the lock is no longer
// registered. If its token holds nothing, others are the sessions that have lost it, too: all those
// of its owner.
func (r *registry) lose(lock *heldLock, tokenHolds bool) (others []*heldLock, ended bool) {
	id := lock.heldID()
	s := r.lock(id.Lock)
	defer s.mu.Unlock()
	last := s.locks[id]
	if last == nil || last.token != lock.token {
		return nil, false
	}
	if tokenHolds {
		if s.leave(lock, last); s.locks[id] != lock {
			return nil, false
		}
	}
	s.delete(id)
	return last.sessionsExcept(lock.Connection), true
}

// leave removes a session from a lock, of which last is registered. mu is held.
func (s *registryShard) leave(lock, last *heldLock) {
	list := slices.DeleteFunc(last.others, func(other *heldLock) bool { return other == lock })
	if last == lock && len(list) > 0 {
		last, list = list[len(list)-1], list[:len(list)-1]
		s.locks[lock.heldID()] = last
	}
	last.others = list
}

// extend sets when the lock of a token ends, unless it is a session lock: that ends with its
// renewals.
func (r *registry) extend(id names.Lock, token, until int64) {
	s := r.lock(id)
	defer s.mu.Unlock()
	lock := s.locks[heldID{id, 0}]
	if lock == nil || lock.token != token {
		lock = s.locks[heldID{id, token}]
	}
	if lock != nil && lock.by == nil {
		lock.until.Store(until)
	}
}

// remove removes the lock that a release with a proof, of a token, has ended, and returns it, nil
// if there is none. A forced release of a shared lock may have ended others.
func (r *registry) remove(
	id names.Lock, p script.Proof, token int64,
) (lock *heldLock, others []*heldLock) {
	s := r.lock(id)
	defer s.mu.Unlock()
	if s.shared > 0 {
		if p.Kind == "force" {
			s.visit(id, func(lock *heldLock) { others = append(others, lock) })
			for _, lock := range others {
				s.delete(lock.heldID())
			}
			if len(others) > 0 {
				return others[0], others[1:]
			}
		}
		if lock = s.locks[heldID{id, cmp.Or(p.Token(), token)}]; lock != nil && lock.Shared {
			s.delete(lock.heldID())
			return lock, nil
		}
	}
	lock = s.locks[heldID{id, 0}]
	switch {
	case lock == nil:
		return nil, nil
	case p.Token() == lock.token:
	case p.Kind == "connection" && p.Value == lock.Connection:
	case p.Kind != "token" && p.Kind != "connection" && token == lock.token:
	default:
		return nil, nil
	}
	delete(s.locks, heldID{id, 0})
	return lock, nil
}

// delete removes a lock. mu is held.
func (s *registryShard) delete(id heldID) {
	if _, ok := s.locks[id]; ok && id.token != 0 {
		s.shared--
	}
	delete(s.locks, id)
}

// sweep removes the locks that have expired, and returns how many are left.
func (r *registry) sweep(now int64) (left int) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		r.sweepLocked(s, now)
		left += len(s.locks)
		s.mu.Unlock()
	}
	return left
}

// sweepLocked sweeps one shard. Its mu is held.
func (r *registry) sweepLocked(s *registryShard, now int64) {
	s.puts = 0
	for id, lock := range s.locks {
		if now > lock.until.Load()+int64(expiryGrace) {
			s.delete(id)
			r.onExpired(lock)
		}
	}
}

// visitAll calls f for all locks.
func (r *registry) visitAll(f func(*heldLock)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for _, lock := range s.locks {
			f(lock)
		}
		s.mu.Unlock()
	}
}
