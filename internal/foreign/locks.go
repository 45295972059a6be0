package foreign

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
)

const (
	maxLocks = 10000 // beyond, one that is over is forgotten, otherwise any
	maxKey   = 512   // bytes; locks with longer names are not remembered
	maxTries = 16    // clients that are remembered as refused, of one lock
	// tryMemory is for how long a client that was refused still counts as trying.
	tryMemory = 10 * time.Second
	// candidateMemory is how long a key that SETNX has set can become a lock by its EXPIRE.
	candidateMemory = 10 * time.Second
)

// Client is a client that does not know LOCK.
type Client struct {
	Addr    string
	Name    string // as CLIENT SETNAME says, "" for none
	Library string // as CLIENT SETINFO says, with its version if that is known; "" for none
}

// holder is the client for the journal.
func (c Client) holder() journal.Holder { return journal.Holder{Owner: c.Name, Client: c.Addr} }

// Try is a client that tries to take a lock and is refused.
type Try struct {
	Client
	Times int
	Since time.Time // of the first
	Last  time.Time
}

func (t Try) fresh(now time.Time) bool { return now.Sub(t.Last) <= tryMemory }

// Lock is what has been seen of one lock.
type Lock struct {
	names.Lock
	Holder  Client    // no Addr: nobody was seen to take it, it is only asked for
	Since   time.Time // of the Holder's
	Until   time.Time // when its TTL ends; zero if it has none
	Refused int       // how often others were refused since then
	Trying  []Try     // those who were refused lately, the longest trying first
	proof   uint64
}

// held reports whether the lock is held as far as was seen.
func (l *Lock) held(now time.Time) bool { return l.Holder.Addr != "" && now.Before(l.Until) }

// taken reports whether the journal has the Holder: a candidate may be no lock.
func (l *Lock) taken() bool { return l.Holder.Addr != "" && !l.Until.IsZero() }

// stale reports whether nothing that matters is known of the lock any more.
func (l *Lock) stale(now time.Time) bool {
	candidate := l.Holder.Addr != "" && l.Until.IsZero() && now.Sub(l.Since) < candidateMemory
	trying := slices.ContainsFunc(l.Trying, func(t Try) bool { return t.fresh(now) })
	return !l.held(now) && !candidate && !trying
}

// Counts is what has happened since the start.
type Counts struct {
	Taken, Released, Expired, Refused uint64
	Held                              int // now, as far as was seen

	Trying    int           // clients that were refused lately
	OldestTry time.Duration // the longest time that one of them has tried
}

// Locks are the locks that were seen. Its zero value is not ready: see NewLocks.
type Locks struct {
	journal *journal.Journal

	mu     sync.Mutex
	locks  map[names.Lock]*Lock // guarded by mu
	counts Counts               // guarded by mu; without what is now
	puts   int                  // guarded by mu; since the last sweep
	known  atomic.Int64         // len(locks)
	keys   *names.Filter        // of locks, and others
}

// NewLocks returns Locks that has seen nothing. It tells j what happens to them, and adds their
// keys to a filter.
func NewLocks(j *journal.Journal, keys *names.Filter) *Locks {
	return &Locks{journal: j, locks: map[names.Lock]*Lock{}, keys: keys}
}

// Any reports whether any lock is known. It costs nothing.
func (l *Locks) Any() bool { return l.known.Load() > 0 }

// Saw records a request about a lock and its outcome. It reports whether the lock was released.
func (l *Locks) Saw(
	id names.Lock, by Client, r Request, outcome Outcome, now time.Time,
) (released bool) {
	if len(id.Key) > maxKey || outcome == Failed || outcome == Queued {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.locks[id]
	switch r.Action {
	case Take, Candidate:
		if outcome == Yes {
			l.takenLocked(id, by, r, now)
		} else if r.Action != Candidate || lock != nil {
			l.refusedLocked(id, by, now)
		}
		return false
	case Touch: // by value alone: see Request.Proof
		if lock == nil || r.Proof == 0 || r.Proof != lock.proof {
			return false
		}
		if r.TTL > 0 {
			r.Action = Extend
		} else {
			r.Action = Release
		}
	}
	if lock == nil || outcome != Yes {
		return r.Action == Release && outcome == Yes
	}
	if r.Action == Extend && r.TTL > 0 {
		if lock.Until.IsZero() && lock.Holder.Addr != "" {
			l.counts.Taken++
			l.journal.Acquired(id, lock.Holder.holder(), 0, monotonic.Of(lock.Since))
		}
		lock.Until = now.Add(r.TTL)
	}
	if r.Action != Release {
		return false
	}
	if lock.taken() {
		l.counts.Released++
		l.endedLocked(journal.Released, lock, now)
	}
	lock.Holder, lock.Until, lock.Refused, lock.proof = Client{}, time.Time{}, 0, 0
	l.forgetLocked(lock, now)
	return true
}

// takenLocked records that a client has taken a lock. mu is held.
func (l *Locks) takenLocked(id names.Lock, by Client, r Request, now time.Time) {
	lock := l.putLocked(id, now)
	if lock.held(now) && r.Proof != 0 && r.Proof == lock.proof && r.TTL > 0 {
		lock.Holder, lock.Until = by, now.Add(r.TTL) // its holder takes it again
		return
	}
	if lock.taken() && now.After(lock.Until) {
		l.expiredLocked(lock)
	}
	asked := now
	for _, t := range lock.Trying {
		if t.Addr == by.Addr && t.fresh(now) {
			asked = t.Since
			l.triedLocked(id, t, now)
		}
	}
	lock.Holder, lock.Since, lock.Until, lock.Refused, lock.proof = by, now, time.Time{}, 0, r.Proof
	if r.TTL > 0 {
		lock.Until = now.Add(r.TTL)
		l.counts.Taken++
		l.journal.Acquired(id, by.holder(), now.Sub(asked), monotonic.Of(now))
	}
	lock.Trying = slices.DeleteFunc(lock.Trying, func(t Try) bool {
		return t.Addr == by.Addr || !t.fresh(now)
	})
}

// expiredLocked records that a lock's TTL is over. mu is held.
func (l *Locks) expiredLocked(lock *Lock) {
	l.counts.Expired++
	l.endedLocked(journal.Expired, lock, lock.Until)
}

func (l *Locks) endedLocked(how journal.Kind, lock *Lock, at time.Time) {
	l.journal.Ended(how, lock.Lock, lock.Holder.holder(), journal.Acquisition{},
		monotonic.Of(lock.Since), monotonic.Of(at))
}

// triedLocked records that a client asks for a lock that others have, or has just got it. mu is
// held.
func (l *Locks) triedLocked(id names.Lock, t Try, now time.Time) {
	l.journal.Tried(id, monotonic.Of(t.Since), monotonic.Of(t.Last), monotonic.Of(now))
}

// refusedLocked records that a client was refused. mu is held.
func (l *Locks) refusedLocked(id names.Lock, by Client, now time.Time) {
	l.counts.Refused++
	lock := l.putLocked(id, now)
	lock.Refused++
	i := slices.IndexFunc(lock.Trying, func(t Try) bool { return t.Addr == by.Addr })
	switch {
	case i >= 0 && lock.Trying[i].fresh(now):
		t := &lock.Trying[i]
		l.triedLocked(id, *t, now)
		t.Times++
		t.Last = now
		return
	case i >= 0:
		lock.Trying = slices.Delete(lock.Trying, i, i+1)
	case len(lock.Trying) >= maxTries:
		lock.Trying = slices.DeleteFunc(lock.Trying, func(t Try) bool { return !t.fresh(now) })
		if len(lock.Trying) >= maxTries {
			return
		}
	}
	try := Try{Client: by, Times: 1, Since: now, Last: now}
	lock.Trying = append(lock.Trying, try)
	l.triedLocked(id, try, now)
}

// putLocked finds a lock, or makes room for it. mu is held.
func (l *Locks) putLocked(id names.Lock, now time.Time) *Lock {
	if lock := l.locks[id]; lock != nil {
		return lock
	}
	if l.puts++; l.puts > maxLocks/4 {
		l.sweepLocked(now)
	}
	for _, old := range l.locks {
		if len(l.locks) < maxLocks {
			break
		}
		if old.taken() {
			l.journal.Forgotten(old.Lock, monotonic.Of(old.Since), monotonic.Of(now))
		}
		delete(l.locks, old.Lock)
		l.keys.Add(old.Key, -1)
	}
	lock := &Lock{Lock: names.Lock{DB: id.DB, Key: strings.Clone(id.Key)}}
	l.locks[lock.Lock] = lock
	l.keys.Add(id.Key, 1)
	l.known.Store(int64(len(l.locks)))
	return lock
}

// forgetLocked forgets a lock if it is stale. mu is held.
func (l *Locks) forgetLocked(lock *Lock, now time.Time) {
	if !lock.stale(now) {
		return
	}
	if lock.taken() {
		l.expiredLocked(lock)
	}
	delete(l.locks, lock.Lock)
	l.keys.Add(lock.Key, -1)
	l.known.Store(int64(len(l.locks)))
}

// sweepLocked forgets all stale locks. mu is held.
func (l *Locks) sweepLocked(now time.Time) {
	l.puts = 0
	for _, lock := range l.locks {
		l.forgetLocked(lock, now)
	}
}

// Counts returns what has happened so far.
func (l *Locks) Counts(now time.Time) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweepLocked(now)
	c := l.counts
	for _, lock := range l.locks {
		if lock.held(now) {
			c.Held++
		}
		for _, t := range lock.Trying {
			if t.fresh(now) {
				c.Trying++
				c.OldestTry = max(c.OldestTry, now.Sub(t.Since))
			}
		}
	}
	return c
}

// List returns up to limit locks that are held, or that clients ask for without success, by name.
func (l *Locks) List(limit int, now time.Time) []Lock {
	l.mu.Lock()
	l.sweepLocked(now)
	list := make([]Lock, 0, min(limit, len(l.locks)))
	for _, lock := range l.locks {
		if len(list) == limit {
			break
		}
		if !lock.Until.IsZero() || len(lock.Trying) > 0 {
			list = append(list, lock.copy(now))
		}
	}
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(a.DB, b.DB), cmp.Compare(a.Key, b.Key))
	})
	return list
}

// Get returns what is known of a lock.
func (l *Locks) Get(id names.Lock, now time.Time) (lock Lock, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lock := l.locks[id]; lock != nil {
		return lock.copy(now), true
	}
	return Lock{}, false
}

// copy is the lock for a reader without mu.
func (l *Lock) copy(now time.Time) Lock {
	c := *l
	if !c.held(now) {
		c.Holder, c.Until = Client{}, time.Time{}
	}
	c.Trying = nil
	for _, t := range l.Trying {
		if t.fresh(now) {
			c.Trying = append(c.Trying, t)
		}
	}
	return c
}
