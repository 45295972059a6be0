package journal

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// Lock names a lock.
type Lock struct {
	DB  int
	Key string
}

// Holder is who was given a lock.
type Holder struct {
	Token  int64
	Owner  string // "" if it has named none
	Client string // address
}

// name is how people know the holder.
func (h Holder) name() string {
	if h.Owner != "" {
		return h.Owner
	}
	return h.Client
}

// Window is how long is remembered at most.
const Window = time.Hour

// Journal is safe for concurrent use. The nil Journal remembers nothing.
type Journal struct {
	seed   maphash.Seed
	shards [shards]shard
}

const shards = 16

type shard struct {
	mu     sync.Mutex
	limit  int // bytes, for the locks and for the events
	locks  map[Lock]*history
	size   int // bytes of locks
	used   [2]list
	events ring
}

// New returns a Journal that uses at most limit bytes, or nil if limit is 0.
func New(limit int64) *Journal {
	if limit <= 0 {
		return nil
	}
	j := &Journal{seed: maphash.MakeSeed()}
	for i := range j.shards {
		s := &j.shards[i]
		s.limit = int(limit / 2 / shards)
		s.locks = map[Lock]*history{}
		s.events.limit = s.limit
	}
	return j
}

// lock returns the shard of a lock, which is locked.
func (j *Journal) lock(id Lock) *shard {
	s := &j.shards[maphash.String(j.seed, id.Key)%shards]
	s.mu.Lock()
	return s
}

// Acquired is for a lock that was given to a holder at a time, after a wait.
func (j *Journal) Acquired(id Lock, to Holder, wait time.Duration, at int64) {
	if j == nil {
		return
	}
	s := j.lock(id)
	defer s.mu.Unlock()
	h := s.find(id, at)
	if h != nil {
		id = h.Lock // the same string for all of its events
	}
	s.events.push(Event{at: at, Kind: Acquired, Lock: id, Holder: to, Wait: wait})
	if h != nil {
		h.settle(at)
		h.minute(at).Acquired++
		h.holder, h.since, h.held = to.name(), at, true
		s.account(h)
	}
}

// Refused is for a LOCK that did not wait and was refused.
func (j *Journal) Refused(id Lock, at int64) {
	if j == nil {
		return
	}
	s := j.lock(id)
	defer s.mu.Unlock()
	if h := s.find(id, at); h != nil {
		h.minute(at).Refused++
		s.contended(h)
	}
}

// Ended is for a lock that its holder, who had it since a time, has no more.
func (j *Journal) Ended(kind Kind, id Lock, had Holder, since, at int64) {
	if j == nil {
		return
	}
	s := j.lock(id)
	defer s.mu.Unlock()
	hold := time.Duration(max(at-since, 0))
	h := s.find(id, at)
	if h != nil {
		id = h.Lock
	}
	s.events.push(Event{at: at, Kind: kind, Lock: id, Holder: had, Hold: hold})
	if h != nil {
		h.settle(at)
		m := h.minute(at)
		m.Hold += hold
		m.LongestHold = max(m.LongestHold, hold)
		h.held = false // blamed until there is another: a hand-over takes no time
		s.account(h)
	}
}

// WaitBegan is for a client that has begun to wait for a lock. WaitEnded must follow.
func (j *Journal) WaitBegan(id Lock, began, at int64) {
	if j == nil {
		return
	}
	s := j.lock(id)
	defer s.mu.Unlock()
	if h := s.find(id, at); h != nil {
		h.settle(at)
		h.waited(began, at, 1)
		h.waiting++
		h.minute(at).Waits++
		s.contended(h)
		s.account(h)
	}
}

// WaitEnded is for a client that waits no more.
func (j *Journal) WaitEnded(id Lock, began, at int64) {
	if j == nil {
		return
	}
	s := j.lock(id)
	defer s.mu.Unlock()
	if h := s.locks[id]; h != nil && h.waiting > 0 { // one that is waited for is kept
		h.settle(at)
		h.waiting--
		m := h.minute(at)
		m.LongestWait = max(m.LongestWait, time.Duration(at-began))
		s.account(h)
	}
}

// askEvery is how often the upstream is asked for a holder that this proxy does not know.
const askEvery = int64(time.Second)

// WantsHolder reports whether the holder of a lock is unknown, and it is time to ask for it.
func (j *Journal) WantsHolder(id Lock, at int64) bool {
	if j == nil {
		return false
	}
	s := j.lock(id)
	defer s.mu.Unlock()
	h := s.locks[id]
	if h == nil || h.held || at-h.asked < askEvery {
		return false
	}
	h.asked = at
	return true
}

// SetHolder says who has a lock, unless this proxy gave it to somebody meanwhile.
func (j *Journal) SetHolder(id Lock, to Holder, at int64) {
	if j == nil {
		return
	}
	s := j.lock(id)
	defer s.mu.Unlock()
	if h := s.locks[id]; h != nil && !h.held {
		h.settle(at)
		h.holder = to.name()
	}
}

// maxName bounds the names that are kept of holders, bytes.
const maxName = 128

// shortened is a name of at most maxName bytes that keeps no longer text in memory.
func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.Clone(name[:maxName])
}
