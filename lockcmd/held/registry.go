package held

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

// Registry has the locks that were taken through this proxy, until their ends are known. It shows
// operators how long locks were held and which of them nobody released, and sessions that a lock
// was taken away. It decides nothing: the upstream does.
type Registry struct {
	seed      maphash.Seed
	onExpired func(*Lock) // called for each lock that has expired, with its shard locked
	shards    [registryShards]registryShard
}

type registryShard struct {
	mu    sync.Mutex
	locks map[ID]*Lock // guarded by mu
	ends  expiry       // guarded by mu; of locks
	// shared are those of locks that are shared, by the lock and the token. guarded by mu
	shared map[names.Lock]map[int64]*Lock
}

const (
	registryShards = 32 // so that few wait for each other
	// maxRegistered bounds a shard. Locks beyond are not registered, except those of sessions.
	maxRegistered = 4096
	// expiryGrace is how long after its timeout a lock counts as expired: a release may be on its
	// way.
	expiryGrace = time.Second
)

func NewRegistry(onExpired func(*Lock)) *Registry {
	r := &Registry{seed: maphash.MakeSeed(), onExpired: onExpired}
	for i := range r.shards {
		r.shards[i].locks = map[ID]*Lock{}
		r.shards[i].shared = map[names.Lock]map[int64]*Lock{}
	}
	return r
}

func (r *Registry) Hash(key string) uint64 { return maphash.String(r.seed, key) }

// lock locks the shard of a lock and returns it.
func (r *Registry) lock(id names.Lock) *registryShard {
	s := &r.shards[r.Hash(id.Key)%registryShards]
	s.mu.Lock()
	return s
}

// Put registers a lock that was taken, or that its owner was given again. It returns the sessions
// of an earlier holder that has not released it: they have probably lost it.
func (r *Registry) Put(lock *Lock) (earlier []*Lock) {
	id, now := lock.heldID(), lock.Since
	s := r.lock(id.Lock)
	defer s.mu.Unlock()
	old := s.locks[id]
	switch {
	case old == nil:
	case old.Token == lock.Token:
		lock.Since = old.Since
		lock.others = old.sessionsExcept(lock.Connection)
		if lock.by == nil { // LOCK does not shorten it; a session lock is renewed long before
			lock.Until.Store(max(lock.Until.Load(), old.Until.Load()))
		}
	default:
		if now > old.Until.Load() {
			r.onExpired(old)
		}
		earlier = old.sessionsExcept(lock.Connection)
	}
	s.delete(id)
	r.sweepLocked(s, now)
	if old != nil || lock.by != nil || len(s.locks) < maxRegistered {
		s.set(lock)
	}
	return earlier
}

// sessionsOf are the sessions that have a lock.
func (r *Registry) sessionsOf(id names.Lock) (list []*Lock) {
	s := r.lock(id)
	defer s.mu.Unlock()
	s.visit(id, func(lock *Lock) { list = lock.appendSessions(list) })
	return list
}

// Visit calls f for the holders of a lock that are registered.
func (r *Registry) Visit(id names.Lock, f func(*Lock)) {
	s := r.lock(id)
	defer s.mu.Unlock()
	s.visit(id, f)
}

// visit is Registry.Visit. mu is held.
func (s *registryShard) visit(id names.Lock, f func(*Lock)) {
	if lock := s.locks[ID{id, 0}]; lock != nil {
		f(lock)
	}
	for _, lock := range s.shared[id] {
		f(lock)
	}
}

// KeepID gives a shared lock that its owner was given again the ID by which it is known here, if
// it was exclusive before: with two IDs, the release of one would look like the loss of the other.
func (r *Registry) KeepID(lock *Lock) {
	s := r.lock(lock.ID())
	defer s.mu.Unlock()
	if old := s.locks[ID{lock.ID(), 0}]; old != nil && old.Token == lock.Token {
		lock.Shared = false
		lock.converted.Store(true)
	}
}

// Has reports whether a lock is registered and has not expired.
func (r *Registry) Has(id names.Lock) bool {
	s := r.lock(id)
	defer s.mu.Unlock()
	live := false
	s.visit(id, func(lock *Lock) { live = live || lock.Until.Load() > monotonic.Now() })
	return live
}

// allSessions are the sessions of all locks.
func (r *Registry) allSessions() (list []*Lock) {
	r.VisitAll(func(lock *Lock) { list = lock.appendSessions(list) })
	return list
}

// leave removes a session from a lock: its connection has ended. Another connection of its owner
// may still have the lock.
func (r *Registry) leave(lock *Lock) {
	s := r.lock(lock.ID())
	defer s.mu.Unlock()
	if last := s.locks[lock.heldID()]; last != nil && last.Token == lock.Token {
		s.leave(lock, last)
	}
}

// lose removes a session from a lock that it has lost, and reports whether the lock is no longer
// registered. If its token holds nothing, others are the sessions that have lost it, too: all those
// of its owner.
func (r *Registry) lose(lock *Lock, tokenHolds bool) (others []*Lock, ended bool) {
	id := lock.heldID()
	s := r.lock(id.Lock)
	defer s.mu.Unlock()
	last := s.locks[id]
	if last == nil || last.Token != lock.Token {
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
func (s *registryShard) leave(lock, last *Lock) {
	list := slices.DeleteFunc(last.others, func(other *Lock) bool { return other == lock })
	if last == lock && len(list) > 0 {
		last, list = list[len(list)-1], list[:len(list)-1]
		s.delete(lock.heldID())
		s.set(last)
	}
	last.others = list
}

// extend sets when the lock of a token ends, unless it is a session lock: that ends with its
// renewals.
func (r *Registry) extend(id names.Lock, token, until int64) {
	s := r.lock(id)
	defer s.mu.Unlock()
	lock := s.locks[ID{id, 0}]
	if lock == nil || lock.Token != token {
		lock = s.locks[ID{id, token}]
	}
	if lock == nil {
		return
	}
	if lock.by == nil {
		lock.Until.Store(until)
	}
	s.ends.sooner(lock, until)
}

// Remove removes the lock that a release with a proof, of a token, has ended, and returns it, nil
// if there is none. A forced release of a shared lock may have ended others.
func (r *Registry) Remove(
	id names.Lock, p script.Proof, token int64,
) (lock *Lock, others []*Lock) {
	s := r.lock(id)
	defer s.mu.Unlock()
	if len(s.shared[id]) > 0 {
		if p.Kind == "force" {
			s.visit(id, func(lock *Lock) { others = append(others, lock) })
			for _, lock := range others {
				s.delete(lock.heldID())
			}
			if len(others) > 0 {
				return others[0], others[1:]
			}
		}
		if lock = s.locks[ID{id, cmp.Or(p.Token(), token)}]; lock != nil && lock.Shared {
			s.delete(lock.heldID())
			return lock, nil
		}
	}
	lock = s.locks[ID{id, 0}]
	switch {
	case lock == nil:
		return nil, nil
	case p.Token() == lock.Token:
	case p.Kind == "connection" && p.Value == lock.Connection:
	case p.Kind != "token" && p.Kind != "connection" && token == lock.Token:
	default:
		return nil, nil
	}
	s.delete(ID{id, 0})
	return lock, nil
}

// set registers a lock, where none is. mu is held.
func (s *registryShard) set(lock *Lock) {
	if of := s.shared[lock.ID()]; lock.Shared && of == nil {
		s.shared[lock.ID()] = map[int64]*Lock{lock.Token: lock}
	} else if lock.Shared {
		of[lock.Token] = lock
	}
	s.locks[lock.heldID()] = lock
	s.ends.add(lock)
}

// delete removes a lock, if it is registered. mu is held.
func (s *registryShard) delete(id ID) {
	lock := s.locks[id]
	if lock == nil {
		return
	}
	if of := s.shared[id.Lock]; lock.Shared {
		if delete(of, id.token); len(of) == 0 {
			delete(s.shared, id.Lock)
		}
	}
	delete(s.locks, id)
	s.ends.remove(lock)
}

// Sweep removes the locks that have expired, and returns how many are left. It looks at no others.
func (r *Registry) Sweep(now int64) (left int) {
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
func (r *Registry) sweepLocked(s *registryShard, now int64) {
	for {
		lock := s.ends.before(now - int64(expiryGrace))
		if lock == nil {
			return
		}
		s.delete(lock.heldID())
		r.onExpired(lock)
	}
}

// VisitAll calls f for all locks.
func (r *Registry) VisitAll(f func(*Lock)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for _, lock := range s.locks {
			f(lock)
		}
		s.mu.Unlock()
	}
}
