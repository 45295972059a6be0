package journal

import (
	"cmp"
	"slices"
	"time"
	"unsafe"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
)

// Kind is what happened.
type Kind uint8

const (
	Acquired Kind = iota
	Released
	Forced
	Disconnected // released since the holder's connection had closed
	Expired
	Lost    // a session lock, neither forced nor deleted
	Deleted // a session lock, by a command that this proxy has relayed
	GaveUp  // a client has stopped waiting, without the lock
	Seen    // the upstream says who has the lock: it was taken elsewhere
)

var kindNames = [...]string{"acquired", "released", "forced", "disconnected", "expired", "lost",
	"deleted", "gave up", "seen"}

func (k Kind) String() string { return kindNames[k] }

// Event is one thing that happened to a lock.
type Event struct {
	at int64 // as monotonic.Now
	Kind
	names.Lock
	Holder
	Wait time.Duration // before it was acquired, or the client gave up
	Hold time.Duration // until it ended
}

// Ago is how long ago the event was.
func (e *Event) Ago() time.Duration { return monotonic.Since(e.at) }

// record is how an event is kept. Most locks end soon after they were acquired: then one record has
// both events.
type record struct {
	Event
	ended int64 // when the lock ended; 0 if that is not known, or is a record by itself
	end   Kind  // how it ended, if it did
}

func (r *record) event() Event {
	e := r.Event
	if r.ended != 0 {
		e.Hold = 0
	}
	return e
}

// endEvent is the event that ended what the record is about.
func (r *record) endEvent() Event {
	e := r.Event
	e.at, e.Kind, e.Wait = r.ended, r.end, 0
	return e
}

// recent is how many records behind the last one a lock's end is still written into the record of
// its acquisition. So an end is never far from its place in time.
const recent = 64

// ring has the last records, as many as limit allows.
type ring struct {
	records []record
	first   int // index of the oldest
	n       int
	pushed  uint64 // so far
	size    int    // bytes
	limit   int    // bytes
}

func (r *record) bytes() int {
	return int(unsafe.Sizeof(*r)) + len(r.Key) + len(r.Owner) + len(r.Client) + len(r.Note)
}

// push returns the number of the new record, or 0 if there is no room for it at all.
func (r *ring) push(e record) uint64 {
	e.Owner = shortened(e.Owner)
	need := e.bytes()
	if need > r.limit {
		return 0
	}
	for r.n > 0 && r.size+need > r.limit {
		old := &r.records[r.first]
		r.size -= old.bytes()
		*old = record{}
		if r.first++; r.first == len(r.records) {
			r.first = 0
		}
		r.n--
	}
	if r.n == len(r.records) {
		r.grow(need)
	}
	r.n++
	*r.at(r.n - 1) = e
	r.size += need
	r.pushed++
	return r.pushed
}

// grow makes room for twice as many records, or as many as limit allows. So when the ring is full,
// a new record mostly takes the place of the oldest, which is in the processor's cache then.
func (r *ring) grow(need int) {
	room := max(16, r.n+r.n/16+1, min(2*r.n, r.limit/((r.size+need)/(r.n+1))))
	grown := make([]record, room)
	for i := range r.n {
		grown[i] = *r.at(i)
	}
	r.records, r.first = grown, 0
}

// at is a record by its age, the oldest first.
func (r *ring) at(i int) *record {
	if i += r.first; i >= len(r.records) {
		i -= len(r.records)
	}
	return &r.records[i]
}

// lately is the record with a number, or nil if it is not one of the last.
func (r *ring) lately(number uint64) *record {
	behind := r.pushed - number
	if number == 0 || behind >= recent || behind >= uint64(r.n) {
		return nil
	}
	return r.at(r.n - 1 - int(behind))
}

// end writes the end of a lock into the record of its acquisition, if that is one of the last.
func (r *ring) end(number uint64, how Kind, had Holder, hold time.Duration, at int64) bool {
	e := r.lately(number)
	if e == nil || e.ended != 0 || e.Token != had.Token || e.Client != had.Client {
		return false
	}
	e.ended, e.end, e.Hold = at, how, hold
	return true
}

// Events returns up to limit of the events since a time that match, newest first. more says that
// there are others.
func (j *Journal) Events(
	since int64, limit int, match func(*Event) bool,
) (list []Event, more bool) {
	if j == nil {
		return nil, false
	}
	for i := range j.shards {
		s := &j.shards[i]
		found, stop := 0, -1 // the first record that is not looked at
		add := func(e Event) {
			if e.at >= since && match(&e) {
				list = append(list, e)
				found++
			}
		}
		s.mu.Lock()
		for k := s.events.n - 1; k > stop; k-- {
			r := s.events.at(k)
			if r.ended != 0 {
				add(r.endEvent())
			}
			add(r.event())
			if found > limit && stop < 0 {
				stop = max(k-recent, -1) // the ends among those are newer
			}
		}
		s.mu.Unlock()
	}
	slices.SortStableFunc(list, func(a, b Event) int { return cmp.Compare(b.at, a.at) })
	if len(list) > limit {
		return list[:limit], true
	}
	return list, false
}
