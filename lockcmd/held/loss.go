package held

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/loglimit"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/script"
)

// A session lock can be lost while its connection is open: it is forced, or its key is deleted or
// overwritten, or the upstream does not answer. The next renewal finds that. If this proxy sees a
// relayed command or another proxy's message that may have ended one, it asks the upstream at once.

// MaxSessions bounds the session locks of all clients.
const MaxSessions = registryShards * maxRegistered

// Sessions finds out which session locks of this proxy are lost.
type Sessions struct {
	*background.Jobs
	registry *Registry
	// onLost notes that a session has lost a lock. ended says that none here has it any more.
	onLost func(kind journal.Kind, lock *Lock, ended bool)

	total atomic.Int64
	keys  *names.Filter // of those that are renewed, and others

	mu     sync.Mutex
	byHash map[names.Hash]counted // guarded by mu

	lines  sync.Map // of verifyLine, by the part of the slots
	sweeps atomic.Int32
}

// counted is a lock that n sessions have.
type counted struct {
	names.Lock
	n int
}

func NewSessions(
	bg *background.Jobs, r *Registry, keys *names.Filter, onLost func(journal.Kind, *Lock, bool),
) *Sessions {
	return &Sessions{Jobs: bg, registry: r, onLost: onLost, keys: keys,
		byHash: map[names.Hash]counted{}}
}

// Full reports whether there are as many session locks as there may be.
func (s *Sessions) Full() bool { return s.total.Load() >= MaxSessions }

// All are the session locks here.
func (s *Sessions) All() []*Lock { return s.registry.allSessions() }

// Count counts a lock that is renewed from now on, or with -1 one that no longer is.
func (s *Sessions) Count(id names.Lock, n int) {
	s.total.Add(int64(n))
	s.keys.Add(id.Key, int32(n))
	hash := id.Hash()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n += s.byHash[hash].n; n > 0 {
		s.byHash[hash] = counted{id, n}
	} else {
		delete(s.byHash, hash)
	}
}

// AnySession reports whether a client here has a session lock.
func (s *Sessions) AnySession() bool { return s.total.Load() > 0 }

// Has reports whether a lock is a session's.
func (s *Sessions) Has(id names.Lock) bool { return len(s.registry.sessionsOf(id)) > 0 }

// VerifyAll asks the upstream, soon, whether clients still hold their session locks, as
// VerifySessions does for all keys. If that is asked for again, the next time is verifyAllEvery
// later: an upstream whose connections fail again and again is not asked more.
func (s *Sessions) VerifyAll(why Loss) {
	if s.sweeps.Add(1) == 1 {
		s.Timers.After(0, func(context.Context) { s.sweep(why) })
	}
}

func (s *Sessions) sweep(why Loss) {
	seen := s.sweeps.Load()
	for _, lock := range s.registry.allSessions() {
		s.Verify(lock, why)
	}
	s.Timers.After(verifyAllEvery, func(context.Context) {
		if !s.sweeps.CompareAndSwap(seen, 0) {
			s.sweeps.Store(1)
			s.sweep(why)
		}
	})
}

// VerifyHash is VerifySessions for the lock with a hash.
func (s *Sessions) VerifyHash(hash names.Hash, why Loss) {
	s.mu.Lock()
	id, is := s.byHash[hash]
	s.mu.Unlock()
	if is {
		s.VerifySessions(id.DB, []string{id.Key}, why)
	}
}

// VerifySessions asks the upstream, soon, whether clients still hold the session locks at keys of
// database db. No keys are all keys of all databases. why says what the proxy has seen; its zero
// value, that the key has changed.
func (s *Sessions) VerifySessions(db int, keys []string, why Loss) {
	if len(keys) == 0 { // these can be many, and an event loop must not wait
		s.Timers.After(0, func(context.Context) {
			for _, lock := range s.registry.allSessions() {
				s.Verify(lock, why)
			}
		})
	}
	for _, key := range keys {
		for _, lock := range s.registry.sessionsOf(names.Lock{DB: db, Key: key}) {
			s.Verify(lock, why)
			if lock.IsShared() && why == (Loss{}) {
				break // its other holders change the key, too; if one loses it, all do
			}
		}
	}
}

const (
	// verifyEvery is the shortest time between two questions about one lock.
	verifyEvery    = 10 * time.Millisecond
	verifyAllEvery = time.Second
	// maxVerifying bounds the unanswered questions about locks of a part of the slots.
	maxVerifying = 256
)

// verifyLine are the questions about locks of a part of the slots. Those beyond maxVerifying wait
// for the answers to others: so they leave room for renewals, which go by the same connections.
type verifyLine struct {
	mu      sync.Mutex
	waiting []func(context.Context) // guarded by mu; one for each lock at most
	asking  int                     // guarded by mu
}

// ask asks a question about a lock, in its turn.
func (s *Sessions) ask(key string, question func(context.Context)) {
	found, _ := s.lines.LoadOrStore(s.Clients.PartOf(key), &verifyLine{})
	line := found.(*verifyLine)
	line.mu.Lock()
	defer line.mu.Unlock()
	if line.waiting = append(line.waiting, question); line.asking < maxVerifying {
		line.asking++
		s.Timers.After(0, line.run)
	}
}

// run asks questions until none waits.
func (line *verifyLine) run(ctx context.Context) {
	for {
		line.mu.Lock()
		if len(line.waiting) == 0 || ctx.Err() != nil {
			line.asking--
			line.mu.Unlock()
			return
		}
		question := line.waiting[0]
		line.waiting[0], line.waiting = nil, line.waiting[1:]
		line.mu.Unlock()
		question(ctx)
	}
}

// Verify asks the upstream whether a client still holds its session lock. One question at a time is
// under way; a new suspicion meanwhile makes it ask again.
func (s *Sessions) Verify(lock *Lock, why Loss) {
	if lock.suspicions.Add(1) == 1 {
		s.verify(lock, why)
	}
}

func (s *Sessions) verify(lock *Lock, why Loss) {
	s.ask(lock.Key, func(ctx context.Context) {
		seen := lock.suspicions.Load()
		on := s.Clients.On(ctx, lock.Login(), lock.Key, time.Now().Add(s.Clients.Patience()))
		v, err := s.Ask(on, script.CheckScript, lock.Key, lock.tokenText())
		if err == nil && v.Int == 0 || isWrongType(err) {
			s.lose(lock, cmp.Or(why, lossAtRenewal(err)))
			if lock.IsShared() {
				s.VerifySessions(lock.As.DB, []string{lock.Key}, cmp.Or(why, lostNotHeld))
			}
		}
		if !lock.suspicions.CompareAndSwap(seen, 0) {
			lock.suspicions.Store(1)
			s.Timers.After(verifyEvery, func(context.Context) { s.verify(lock, why) })
		}
	})
}

// isWrongType reports whether a lock's key holds something else.
func isWrongType(err error) bool {
	var said script.ServerError
	return errors.As(err, &said) && script.HasCode(said, "WRONGTYPE")
}

// Loss is why a session lock is lost. Its zero value is an unknown reason.
type Loss struct {
	kind  journal.Kind // what the journal calls it: Deleted if the key was deleted or overwritten
	alone bool         // the session has lost its lock alone: the token may hold it still
	text  string       // for the log
}

// LostBy is what may have ended a lock: a command, or a release here.
func LostBy(text string) Loss { return Loss{kind: journal.Deleted, text: text} }

var (
	lostNotHeld = Loss{kind: journal.Lost,
		text: "the token no longer holds the lock: the lock was released, deleted or overwritten"}
	lostWrongType = LostBy("the key was overwritten")
	lostMax       = Loss{kind: journal.Lost, alone: true, text: "the lock was held for as long " +
		"as MAX allows"}

	LostElsewhere = Loss{kind: journal.Lost, text: "the lock was released through another proxy"}
)

// lossAtRenewal says why a renewal has failed.
func lossAtRenewal(err error) Loss {
	switch {
	case err == nil:
		return lostNotHeld
	case isWrongType(err):
		return lostWrongType
	}
	return Loss{kind: journal.Lost, alone: true, text: "not renewed in time: " + err.Error()}
}

// Released tells the sessions of a lock that a release here has ended it, and why.
func (s *Sessions) Released(lock *Lock, why Loss) {
	for _, session := range lock.sessionsExcept("") {
		s.lose(session, why)
	}
	if lock.by == nil {
		lock.Until.Store(0)
	}
}

// lose tells a session that its lock is lost, if it is still being renewed; otherwise it returns
// false. Other sessions of its owner have lost it, too, unless it has alone.
func (s *Sessions) lose(lock *Lock, why Loss) (lost bool) {
	h := lock.by
	h.mu.Lock()
	if !lock.renewed {
		h.mu.Unlock()
		return false
	}
	h.removeLocked(lock.heldID())
	h.mu.Unlock()
	others, ended := s.registry.lose(lock, why.alone)
	s.onLost(why.kind, lock, ended)
	s.Log.Warn("a session lock was lost", loglimit.Add([]any{"key", lock.Key, "token", lock.Token,
		"client", h.Addr, "reason", why.text}, "owner", lock.OwnerOrName(), "note", lock.Note)...)
	h.LockLost(lock.Key, lock.Token)
	for _, other := range others {
		s.lose(other, why)
	}
	return true
}
