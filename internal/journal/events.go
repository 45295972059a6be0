package journal

import (
	"cmp"
	"slices"
	"time"
	"unsafe"
)

// Kind is what happened.
type Kind uint8

const (
	Acquired Kind = iota
	Released
	Forced
	Disconnected // released since the holder's connection had closed
	Expired
	Lost    // a session lock, otherwise than by being forced or deleted
	Deleted // a session lock, by a command that passed through this proxy
)

var kindNames = [...]string{"acquired", "released", "forced", "disconnected", "expired", "lost",
	"deleted"}

func (k Kind) String() string { return kindNames[k] }

// Event is one that was seen.
type Event struct {
	at int64 // as monotonic.Now
	Kind
	Lock
	Holder
	Wait time.Duration // before it was acquired
	Hold time.Duration // until it ended
}

// At is the time of the event, given one moment by both clocks.
func (e *Event) At(now time.Time, at int64) time.Time { return now.Add(time.Duration(e.at - at)) }

// ring has the last events, as many as limit allows.
type ring struct {
	events []Event
	first  int // index of the oldest
	n      int
	size   int // bytes
	limit  int // bytes
}

func (e *Event) bytes() int {
	return 2*int(unsafe.Sizeof(*e)) + len(e.Key) + len(e.Owner) + len(e.Client) // the room doubles
}

func (r *ring) push(e Event) {
	e.Owner = shortened(e.Owner)
	need := e.bytes()
	for r.n > 0 && r.size+need > r.limit {
		old := &r.events[r.first]
		r.size -= old.bytes()
		*old = Event{}
		r.first = (r.first + 1) % len(r.events)
		r.n--
	}
	if need > r.limit {
		return
	}
	if r.n == len(r.events) {
		grown := make([]Event, max(16, 2*r.n))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.events, r.first = grown, 0
	}
	r.n++
	*r.at(r.n - 1) = e
	r.size += need
}

// at is an event by its age, the oldest first.
func (r *ring) at(i int) *Event { return &r.events[(r.first+i)%len(r.events)] }

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
		s.mu.Lock()
		for k, n := s.events.n-1, 0; k >= 0; k-- {
			e := s.events.at(k)
			if e.at < since || !match(e) {
				continue
			}
			if n++; n > limit {
				break
			}
			list = append(list, *e)
		}
		s.mu.Unlock()
	}
	slices.SortStableFunc(list, func(a, b Event) int { return cmp.Compare(b.at, a.at) })
	if len(list) > limit {
		return list[:limit], true
	}
	return list, false
}
