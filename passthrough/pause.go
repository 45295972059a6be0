package passthrough

// How reads go on while the upstream holds back writes, as CLIENT PAUSE … WRITE has it do: where clients share a connection one's write,
// held back, would hold all that stands behind it. So nobody shares while a pause lasts that went by this proxy.

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// bracePatience is how long a pause waits for what lanes have been asked before.
	bracePatience = 100 * time.Millisecond
	// braceAgain is how long after a pause that was refused nobody is kept from sharing for another one's sake before it has begun.
	braceAgain = 10 * time.Second
)

// pause is whether sessions may not share at this moment. Its zero value says that they may.
type pause struct {
	on atomic.Bool

	mu      sync.Mutex
	limited bool        // guarded by mu; the upstream has limits for what a client does
	begins  int         // guarded by mu; pauses that are about to be asked for
	end     time.Time   // guarded by mu; of one that is known of
	timer   *time.Timer // guarded by mu; looks at end; nil if there is none
	refused time.Time   // guarded by mu; when one was last
	closed  bool        // guarded by mu
}

// brace says that a pause is about to be asked for. If it returns true unbrace must be called.
func (s *pause) brace() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.refused.IsZero() && time.Since(s.refused) < braceAgain {
		return false
	}
	s.begins++
	s.setLocked()
	return true
}

func (s *pause) unbrace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begins--
	s.setLocked()
}

// lasts says that writes are held back for so long from now on, at least.
func (s *pause) lasts(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := time.Now().Add(d); end.After(s.end) {
		s.end = end
	}
	s.setLocked()
}

// over says that they aren't any more.
func (s *pause) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = time.Time{}
	s.setLocked()
}

// wasRefused says that a pause was.
func (s *pause) wasRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = time.Now()
}

// close stops what may be running.
func (s *pause) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// setLocked makes on true as long as it should be. mu is held.
func (s *pause) setLocked() {
	left := time.Until(s.end)
	s.on.Store(s.limited || s.begins > 0 || left > 0)
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if left > 0 && !s.closed {
		s.timer = time.AfterFunc(left, func() { // close stops it
			s.mu.Lock()
			defer s.mu.Unlock()
			s.setLocked()
		})
	}
}

// Unshare says whether the upstream has limits beyond which it closes a connection, so that nobody may share one.
func (ls *Lanes) Unshare(limited bool) {
	ls.pause.mu.Lock()
	defer ls.pause.mu.Unlock()
	ls.pause.limited = limited
	ls.pause.setLocked()
}

// apart reports whether sessions of an identity may not share at this moment. Those that can't be given connections of their own must.
func (ls *Lanes) apart(id Identity) bool {
	if !ls.pause.on.Load() {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g := ls.groups[loginOf(id)]
	return g == nil || !g.stale
}

// Brace is called before a request of this session's that has the upstream hold back writes, if it is granted. It waits until lanes have
// answered what they were asked before. Unbrace must be called when the request has been answered.
func (p *Pipe) Brace() {
	p.braced = p.lanes.pause.brace()
	for over := time.Now().Add(bracePatience); p.braced && p.lanes.busy() && time.Now().Before(over); {
		time.Sleep(time.Millisecond)
	}
}

// Unbrace is called when that has been answered.
func (p *Pipe) Unbrace() {
	if p.braced {
		p.lanes.pause.unbrace()
	}
	p.braced = false
}

// busy reports whether a lane has been asked something that it hasn't answered.
func (ls *Lanes) busy() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, set := range ls.sets {
		for _, l := range set.lanes {
			if l.silent.Load() != 0 && !l.retired.Load() {
				return true
			}
		}
	}
	return false
}

// said takes account of what has become of a request to hold back writes, or not to.
func (s *pause) said(c pauseChange) {
	switch {
	case c.refused:
		s.wasRefused()
	case c.over:
		s.over()
	case c.lasts > 0:
		s.lasts(c.lasts)
	}
}

// pauseChange is what a reply tells of a pause. Its zero value is nothing.
type pauseChange struct {
	lasts         time.Duration
	over, refused bool
}
