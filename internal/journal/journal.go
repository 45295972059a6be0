package journal

import (
	"cmp"
	"container/list"
	"hash/maphash"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"lockproxy/internal/names"
)

// Holder is who was given a lock.
type Holder struct {
	Token  int64
	Owner  string // "" if it has named none
	Client string // address
	Note   string // why it has asked, if it has said so
}

// name is how people know the holder, shortened.
func (h Holder) name() string { return shortened(cmp.Or(h.Owner, h.Client)) }

// Window is how long events are remembered at most.
const Window = time.Hour

// Journal is safe for concurrent use. The nil Journal remembers nothing.
type Journal struct {
	seed   maphash.Seed
	shards [shards]shard
}

const shards = 16

type shard struct {
	mu     sync.Mutex
	limit  int                 // bytes, for the locks and for the events
	locks  map[uint64]*history // by the hash of the lock
	size   int                 // bytes of locks
	used   [2]list.List
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
		s.locks = map[uint64]*history{}
		s.events.limit = s.limit
	}
	return j
}

// hash is of a lock: two have the same only by chance, and nobody can make that happen.
func (j *Journal) hash(id names.Lock) uint64 {
	return maphash.String(j.seed, id.Key) + uint64(id.DB)*0x9e3779b97f4a7c15
}

// lock returns the shard of a lock, which is locked, and the lock's hash.
func (j *Journal) lock(id names.Lock) (*shard, uint64) {
	hash := j.hash(id)
	s := &j.shards[hash%shards]
	s.mu.Lock()
	return s, hash
}

// change has f change the history of a lock at a time, if there is one. A new one is made if there
// is room and makes says so.
func (j *Journal) change(id names.Lock, makes bool, at int64, f func(s *shard, h *history)) {
	if j == nil {
		return
	}
	s, hash := j.lock(id)
	defer s.mu.Unlock()
	h := s.locks[hash]
	if makes {
		h = s.find(id, hash, at)
	}
	if h.is(id) {
		f(s, h)
		s.account(h)
	}
}

// push records an event. lasted is the time of a wait, or the time for which the lock was held.
func (s *shard) push(at int64, kind Kind, id names.Lock, who Holder, lasted time.Duration) uint64 {
	e := Event{at: at, Kind: kind, Lock: id, Holder: who, Hold: lasted}
	if kind == Acquired || kind == GaveUp {
		e.Wait, e.Hold = lasted, 0
	}
	return s.events.push(record{Event: e})
}

// Acquisition is where a Journal remembers that a lock was acquired. The zero value is nowhere.
type Acquisition struct {
	shard  *shard
	of     *history
	record uint64 // the number of its record: no other of the shard has the same
}

// Acquired records that a lock was given to a holder at a time, after a wait. The result makes
// Ended cheaper.
func (j *Journal) Acquired(
	id names.Lock, to Holder, wait time.Duration, at int64,
) (where Acquisition) {
	if j == nil {
		return where
	}
	s, hash := j.lock(id)
	defer s.mu.Unlock()
	h := s.find(id, hash, at)
	if h != nil {
		id = h.Lock // the same string for all of its events
	}
	number := s.push(at, Acquired, id, to, wait)
	if h != nil {
		h.countWaits(at)
		h.record = number
		h.minute(at).Acquired++
		h.holder, h.since, h.held = to.name(), at, true
		s.account(h)
		where = Acquisition{s, h, number}
	}
	return where
}

// lock returns the history of the acquisition, and its shard, which is locked. It is nil if
// something else has happened to the lock since: then nothing is locked.
func (a Acquisition) lock() (*shard, *history) {
	if a.record == 0 {
		return nil, nil
	}
	a.shard.mu.Lock()
	if a.of.record != a.record {
		a.shard.mu.Unlock()
		return nil, nil
	}
	return a.shard, a.of
}

// Refused records that a LOCK without WAIT was refused.
func (j *Journal) Refused(id names.Lock, at int64) {
	j.change(id, true, at, func(s *shard, h *history) {
		h.minute(at).Refused++
		s.contended(h)
	})
}

// Ended records that a holder has lost or released a lock that it had since a time. where is what
// Acquired has returned, if that is known.
func (j *Journal) Ended(kind Kind, id names.Lock, had Holder, where Acquisition, since, at int64) {
	if j == nil {
		return
	}
	s, h := where.lock()
	if h == nil {
		var hash uint64
		s, hash = j.lock(id)
		h = s.find(id, hash, at)
	}
	defer s.mu.Unlock()
	hold := time.Duration(max(at-since, 0))
	if h != nil {
		id = h.Lock
	}
	if h == nil || !s.events.end(h.record, kind, had, hold, at) {
		s.push(at, kind, id, had, hold)
	}
	if h != nil {
		h.ends(hold, at)
		s.account(h)
	}
}

// ends counts a hold that is over. The holder is blamed until there is another: a hand-over takes
// no time.
func (h *history) ends(hold time.Duration, at int64) {
	h.countWaits(at)
	m := h.minute(at)
	m.Hold += hold
	m.LongestHold = max(m.LongestHold, hold)
	h.held = false
}

// Forgotten records that nobody knows from now on whether a client, which has had a lock since a
// time, still holds it. The history gets no event.
func (j *Journal) Forgotten(id names.Lock, since, at int64) {
	j.change(id, false, at, func(_ *shard, h *history) {
		h.ends(time.Duration(max(at-since, 0)), at)
	})
}

// WaitBegan records that a client has begun to wait for a lock. WaitEnded must follow.
func (j *Journal) WaitBegan(id names.Lock, began, at int64) {
	j.change(id, true, at, func(s *shard, h *history) {
		h.countWaits(at)
		h.minute(began).Waits++
		h.waited(began, at, 1)
		h.waiting++
		s.contended(h)
	})
}

// WaitEnded records that a client has stopped waiting. got says that Acquired follows.
func (j *Journal) WaitEnded(id names.Lock, who Holder, got bool, began, at int64) {
	if j == nil {
		return
	}
	s, hash := j.lock(id)
	defer s.mu.Unlock()
	if !got {
		s.push(at, GaveUp, id, who, time.Duration(at-began))
	}
	if h := s.locks[hash]; h.is(id) && h.waiting > 0 { // one that is waited for is kept
		h.countWaits(at)
		h.waiting--
		m := h.minute(at)
		m.LongestWait = max(m.LongestWait, time.Duration(at-began))
		s.account(h)
	}
}

// Tried records that a client in no queue asks again for a lock that others have. It first asked at
// began and last at from, which can be the same. It counts as waiting between its tries.
func (j *Journal) Tried(id names.Lock, began, from, at int64) {
	j.change(id, true, at, func(s *shard, h *history) {
		h.countWaits(at)
		m := h.minute(at)
		if at == began {
			m.Waits++
		}
		h.waited(from, at, 1)
		m = h.minute(at)
		m.LongestWait = max(m.LongestWait, time.Duration(at-began))
		s.contended(h)
	})
}

// askEvery is how often the upstream is asked for a holder that this proxy does not know.
const askEvery = int64(time.Second)

// WantsHolder reports whether the holder of a lock is unknown, and it is time to ask for it.
func (j *Journal) WantsHolder(id names.Lock, at int64) (wants bool) {
	j.change(id, false, at, func(_ *shard, h *history) {
		if wants = !h.held && at-h.asked >= askEvery; wants {
			h.asked = at
		}
	})
	return wants
}

// SetHolder records who has a lock, unless this proxy has given it to a client meanwhile.
func (j *Journal) SetHolder(id names.Lock, to Holder, at int64) {
	j.change(id, false, at, func(s *shard, h *history) {
		if !h.held && h.holder != to.name() {
			h.countWaits(at)
			h.holder, h.since = to.name(), at
			s.push(at, Seen, h.Lock, to, 0)
		}
	})
}

// maxName bounds the names that are kept of holders, bytes.
const maxName = 128

// shortened is a name of at most maxName bytes that keeps no longer text in memory. It ends with a
// whole character.
func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	end := maxName
	for end > maxName-utf8.UTFMax && !utf8.RuneStart(name[end]) {
		end--
	}
	return strings.Clone(name[:end])
}
