package journal

import (
	"container/list"
	"slices"
	"time"
	"unsafe"

	"lockproxy/internal/names"
)

// Numbers are what happened to a lock within a time.
type Numbers struct {
	Acquired, Refused, Waits uint32
	Wait, LongestWait        time.Duration // Wait is of all waiters together
	Hold, LongestHold        time.Duration
}

func (n *Numbers) add(m Numbers) {
	n.Acquired += m.Acquired
	n.Refused += m.Refused
	n.Waits += m.Waits
	n.Wait += m.Wait
	n.LongestWait = max(n.LongestWait, m.LongestWait)
	n.Hold += m.Hold
	n.LongestHold = max(n.LongestHold, m.LongestHold)
}

// Blame is how long others have waited while somebody had a lock.
type Blame struct {
	Holder string // "" is unknown, or any beyond maxBlame
	Wait   time.Duration
}

// maxBlame bounds the holders that are blamed within a minute; others are blamed together.
const maxBlame = 8

// minute is what happened to a lock within one minute. Minutes without events are not kept.
type minute struct {
	number int64 // since time 0
	Numbers
	carried uint32 // waits that went on when it began
	blame   []Blame
}

// history is what is remembered of one lock.
type history struct {
	names.Lock
	hash  uint64     // of Lock
	used  *list.List // the one of its shard that it is in
	place *list.Element
	size  int  // bytes
	grown bool // since its size was counted

	minutes []minute // the oldest first
	holder  string   // the last known
	since   int64    // when it was given the lock
	held    bool     // by holder, as far as this proxy knows
	waiting int      // clients, now
	changed int64    // up to when their waits are counted
	asked   int64    // when the upstream was last asked for the holder
	record  uint64   // the number of that of the last acquisition; 0 is none
}

const minuteLength = int64(time.Minute)

// minute is that of a time. It is added if it is new; then those outside of the Window are dropped.
func (h *history) minute(at int64) *minute {
	number := at / minuteLength
	if n := len(h.minutes); n > 0 && h.minutes[n-1].number >= number {
		return &h.minutes[n-1] // at can be a little late
	}
	old := 0
	for old < len(h.minutes) && h.minutes[old].number <= number-int64(Window/time.Minute) {
		old++
	}
	h.minutes = append(slices.Delete(h.minutes, 0, old), minute{number: number})
	h.grown = true
	return &h.minutes[len(h.minutes)-1]
}

// countWaits counts the waits that go on up to a time.
func (h *history) countWaits(at int64) {
	if h.waiting > 0 && at > h.changed {
		h.waited(h.changed, at, h.waiting)
	}
	h.changed = max(h.changed, at)
}

// waited counts n waits from a time to another, each minute's in that minute.
func (h *history) waited(from, to int64, n int) {
	h.grown = true // perhaps: another is blamed
	if oldest := to - int64(Window); from < oldest {
		h.minute(from).wait(h.holder, time.Duration(oldest-from)*time.Duration(n))
		from = oldest
	}
	for from < to {
		end := min(to, (from/minuteLength+1)*minuteLength)
		h.minute(from).wait(h.holder, time.Duration(end-from)*time.Duration(n))
		if from = end; end%minuteLength == 0 {
			h.minute(end).carried += uint32(n)
		}
	}
}

func (m *minute) wait(holder string, d time.Duration) {
	m.Wait += d
	for i := range m.blame {
		if m.blame[i].Holder == holder {
			m.blame[i].Wait += d
			return
		}
	}
	if len(m.blame) >= maxBlame && holder != "" {
		m.wait("", d)
		m.Wait -= d
		return
	}
	m.blame = append(m.blame, Blame{holder, d})
}

// bytes is about how much memory the history takes.
func (h *history) bytes() int {
	n := int(unsafe.Sizeof(*h)+unsafe.Sizeof(*h.place)) + 2*len(h.Key) + 64 + // in the map too
		cap(h.minutes)*int(unsafe.Sizeof(minute{}))
	for i := range h.minutes {
		n += cap(h.minutes[i].blame) * (int(unsafe.Sizeof(Blame{})) + maxName/2)
	}
	return n
}

// A shard has its histories in two lists, the longest unused first: of the locks for which nobody
// waited, and of the others.
const (
	quiet = iota
	busy
)

// usedWithin is how long after a use another does not count.
const usedWithin = int64(time.Second)

// find returns the history of a lock, which is used now. It is nil if there is no room for one.
func (s *shard) find(id names.Lock, hash uint64, at int64) *history {
	h := s.locks[hash]
	if h != nil && !h.is(id) {
		s.forget(h)
		h = nil
	}
	if h == nil {
		if h = s.room(id); h == nil {
			return nil
		}
		h.Lock, h.hash, h.changed = id, hash, at
		h.size = h.bytes()
		s.size += h.size
		s.locks[hash] = h
		h.used = &s.used[quiet]
		h.place = h.used.PushBack(h)
		return h
	}
	if at-h.changed >= usedWithin {
		h.used.MoveToBack(h.place)
	}
	return h
}

// is reports whether the history, which has the hash of a lock, is that lock's. Of the key only the
// length is compared: equal hashes are next to impossible, and reading the key takes as long as
// much of the rest.
func (h *history) is(id names.Lock) bool {
	return h != nil && h.DB == id.DB && len(h.Key) == len(id.Key)
}

func (s *shard) forget(h *history) {
	h.record = 0 // no Acquisition is there any more
	h.used.Remove(h.place)
	delete(s.locks, h.hash)
	s.size -= h.size
}

// room makes room for the history of a lock, and returns an empty one. Locks that clients wait for
// are kept.
func (s *shard) room(id names.Lock) *history {
	need := int(unsafe.Sizeof(history{})) + 2*len(id.Key) + 256
	if need > s.limit {
		return nil
	}
	var free *history
	for s.size+need > s.limit {
		old := s.oldest()
		if old == nil {
			return nil
		}
		s.forget(old)
		free = old
	}
	if free == nil {
		return &history{}
	}
	var minutes []minute
	if cap(free.minutes) <= 4 {
		minutes = slices.Delete(free.minutes, 0, len(free.minutes))
	}
	*free = history{minutes: minutes}
	return free
}

// oldest is the history to forget first, or nil.
func (s *shard) oldest() *history {
	for i := range s.used {
		for e := s.used[i].Front(); e != nil; e = e.Next() {
			if h := e.Value.(*history); h.waiting == 0 {
				return h
			}
		}
	}
	return nil
}

// contended marks a lock that a client did not get at once.
func (s *shard) contended(h *history) {
	if h.used != &s.used[busy] {
		h.used.Remove(h.place)
		h.used = &s.used[busy]
		h.place = h.used.PushBack(h)
	}
}

// account counts the memory of a history that has changed, and makes room for it.
func (s *shard) account(h *history) {
	if !h.grown {
		return
	}
	h.grown = false
	size := h.bytes()
	s.size += size - h.size
	h.size = size
	for s.size > s.limit {
		old := s.oldest()
		if old == nil || old == h {
			return
		}
		s.forget(old)
	}
}
