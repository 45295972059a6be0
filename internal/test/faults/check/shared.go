//go:build linux

package check

import (
	"slices"

	"github.com/anishathalye/porcupine"

	"lockproxy/internal/test/faults/history"
)

// sharer is a holder in a sharedState.
type sharer struct {
	token           int64
	shared          bool
	soonest, latest int64 // when it may have ended, and when it must have
}

// sharedState is a lock that several can hold: readers and writers, and a semaphore. The register
// is that of a lockState. Holders that may have ended are still listed.
type sharedState struct {
	last    int64 // token
	value   string
	holders []sharer
}

// sharedModel is lockModel for a lock that is shared at times.
var sharedModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{sharedState{}} },
	Step: func(state, input, _ any) []any { return nextShared(state.(sharedState), input.(step)) },
	Equal: func(a, b any) bool {
		s, o := a.(sharedState), b.(sharedState)
		return s.last == o.last && s.value == o.value && slices.Equal(s.holders, o.holders)
	},
}

// nextShared is next for a shared lock.
func nextShared(s sharedState, o step) []any {
	at := slices.IndexFunc(s.holders, func(h sharer) bool { return h.token == o.Token })
	holds := at >= 0 && o.Call <= s.holders[max(at, 0)].latest
	without := at < 0 || o.Return >= s.holders[max(at, 0)].soonest
	done := s
	switch o.Kind {
	case history.Lock, history.Probe:
		return acquireShared(s, o)
	case history.Get:
		if s.value == o.Got {
			return []any{s}
		}
		return nil
	case history.Unlock:
		done = s.without(at)
	case history.Fence:
		done.value = o.Value
	case history.Relock:
		if at >= 0 {
			h := relocked(lockState{soonest: s.holders[at].soonest, latest: s.holders[at].latest},
				o)
			done.holders = slices.Clone(s.holders)
			done.holders[at].soonest, done.holders[at].latest = h.soonest, h.latest
			done.holders[at].shared = s.holders[at].shared || o.Shared
		}
	default:
		return []any{s}
	}
	switch {
	case o.Outcome == history.Unknown && holds:
		return []any{s, done}
	case o.Outcome == history.Unknown:
		return []any{s}
	case accepted(o.Op) && holds:
		return []any{done}
	case !accepted(o.Op) && without && o.back && at >= 0:
		// Its time can come back with the clock, while nobody has needed its place.
		return []any{s.without(at), s}
	case !accepted(o.Op) && without:
		return []any{s.without(at)}
	}
	return nil
}

// without is the state after a holder has left, if there is one at that place.
func (s sharedState) without(at int) sharedState {
	if at >= 0 {
		s.holders = slices.Delete(slices.Clone(s.holders), at, at+1)
	}
	return s
}

func acquireShared(s sharedState, o step) []any {
	soonest, latest := o.Call+o.Timeout-exact, o.Return+o.Timeout+o.longer+exact
	if o.Session {
		soonest, latest = min(soonest, o.lostAt), forever
	}
	for i, h := range s.holders {
		if h.token == o.Result {
			if o.Owner == "" {
				return nil
			}
			s.holders = slices.Clone(s.holders)
			s.holders[i].soonest, s.holders[i].latest = max(h.soonest, soonest), max(h.latest,
				latest)
			return []any{s}
		}
	}
	stay, certain := []sharer(nil), 0
	for _, h := range s.holders {
		mustHold := o.Return < h.soonest
		if mustHold && !(h.shared && o.Shared) {
			return nil
		}
		if mustHold {
			certain++
		}
		if h.shared && o.Shared && o.Call <= h.latest {
			stay = append(stay, h)
		}
	}
	// An owner can come back for what an earlier LOCK of its, of unknown outcome, has taken.
	again := o.Shared && o.Owner != ""
	fresh := o.Result > s.last
	if !fresh && !again || fresh && o.Limit > 0 && certain >= o.Limit {
		return nil
	}
	s.last, s.holders = max(s.last, o.Result), append(stay, sharer{o.Result, o.Shared, soonest,
		latest})
	return []any{s}
}
