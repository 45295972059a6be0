//go:build linux

package check

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"lockproxy/internal/test/faults/history"
)

// porcupineTime bounds porcupine's search on one lock.
const porcupineTime = 10 * time.Second

// fence checks that a lock with its register is linearizable.
func (c *checker) fence(key string, ops []history.Op) {
	ops = c.beforeLoss(ops)
	if len(ops) == 0 {
		return
	}
	c.checked("fence")
	longer := int64(0)
	for _, f := range c.faults {
		longer += f.Longer
	}
	model := lockModel.ToModel()
	if len(sharedTokens(ops)) > 0 {
		model = sharedModel.ToModel()
	}
	switch porcupine.CheckOperationsTimeout(model, steps(ops, longer), porcupineTime) {
	case porcupine.Illegal:
		c.violated("fence", ops, "lock %s and its register are not linearizable", key)
	case porcupine.Unknown:
		c.report.Undecided = append(c.report.Undecided, fmt.Sprintf("lock %s, %d operations", key,
			len(ops)))
	}
}

// beforeLoss returns the operations before the first fault that ended leases, lost data or let
// tokens go back. The outcome of those still under way at that time is unknown.
func (c *checker) beforeLoss(ops []history.Op) (list []history.Op) {
	until := forever
	for _, f := range c.faults {
		if f.Breaks.Leases || f.Breaks.Writes || f.Breaks.Tokens {
			until = min(until, f.From)
		}
	}
	for _, o := range ops {
		if o.Call >= until {
			continue
		}
		if o.Return >= until {
			o.Return, o.Outcome, o.Result = 0, history.Unknown, 0
		}
		list = append(list, o)
	}
	return list
}

// lockState is a lock with the register that its holders write.
type lockState struct {
	token    int64 // the last one given; 0 before the first
	released bool
	soonest  int64 // when the lock may have expired
	latest   int64 // when it must have
	value    string
}

// step is an operation as the model sees it.
type step struct {
	history.Op
	lostAt int64 // when the connection of a session lock was seen to end; forever if never
	longer int64 // by how much a lease can outlive its timeout; forever if that is not known
	back   bool  // Redis's clock was set back
}

// steps leaves out operations without effect and bounds those of unknown outcome: a step that names
// a token took effect before a greater token was given, if at all.
func steps(ops []history.Op, longer int64) []porcupine.Operation {
	lostAt := lossesOf(ops)
	for _, o := range ops {
		if o.Kind == history.Unlock {
			if at, ok := lostAt[o.Token]; !ok || o.Call < at {
				lostAt[o.Token] = o.Call
			}
		}
	}
	shared, extended := sharedTokens(ops), extendedTokens(ops)
	var list []porcupine.Operation
	for _, o := range ops {
		s := step{Op: o, lostAt: forever, longer: longer, back: longer > 0}
		if extended[max(o.Token, o.Result)] {
			s.longer = forever
		}
		switch {
		case o.Kind == history.Lost, o.Kind == history.Unlock && o.Token == 0,
			o.Outcome == history.Refused, o.Outcome == history.Garbled:
			continue
		case o.Kind == history.Lock || o.Kind == history.Probe:
			if !o.Acquired() {
				continue
			}
			if at, ok := lostAt[o.Result]; ok {
				s.lostAt = at
			}
		case o.Kind == history.Get && o.Outcome != history.OK:
			continue
		}
		end := o.Return
		if o.Outcome == history.Unknown {
			end = forever
			for _, other := range ops {
				if other.Acquired() && other.Result > o.Token &&
					!(other.Shared && shared[o.Token]) {
					end = min(end, other.Return)
				}
			}
			end = max(end, o.Call)
		}
		list = append(list, porcupine.Operation{ClientId: o.Client, Input: s, Call: o.Call,
			Return: end})
	}
	return list
}

// extendedTokens are those of owners one of whose LOCKs has an unknown outcome: it can have extended
// the lease at any time.
func extendedTokens(ops []history.Op) map[int64]bool {
	unknown, extended := map[string]bool{}, map[int64]bool{}
	for _, o := range ops {
		if o.Kind == history.Lock && o.Owner != "" && o.Outcome == history.Unknown {
			unknown[o.Owner] = true
		}
	}
	for _, o := range ops {
		if o.Acquired() && unknown[o.Owner] {
			extended[o.Result] = true
		}
	}
	return extended
}

// exact is the error of a time: timeouts are in whole milliseconds.
const exact = int64(2 * time.Millisecond)

var lockModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{lockState{released: true}} },
	Step: func(state, input, _ any) []any { return next(state.(lockState), input.(step)) },
}

// next returns the states that a lock can be in after a step; none if the step is impossible.
func next(s lockState, o step) []any {
	holds := s.token == o.Token && !s.released && o.Call <= s.latest
	without := s.token != o.Token || s.released || o.Return >= s.soonest
	unknown := o.Outcome == history.Unknown
	switch o.Kind {
	case history.Lock, history.Probe:
		return acquire(s, o)
	case history.Get:
		if s.value == o.Got {
			return []any{s}
		}
		return nil
	case history.Unlock, history.Relock, history.Fence:
	default:
		return []any{s}
	}
	done := s
	switch o.Kind {
	case history.Unlock:
		done.released = true
	case history.Fence:
		done.value = o.Value
	case history.Relock:
		done = relocked(s, o)
	}
	switch {
	case unknown && holds:
		return []any{s, done}
	case unknown:
		return []any{s}
	case accepted(o.Op) && holds:
		return []any{done}
	case !accepted(o.Op) && without:
		if s.token == o.Token {
			s.released = true
		}
		return []any{s}
	}
	return nil
}

func acquire(s lockState, o step) []any {
	soonest, latest := o.Call+o.Timeout-exact, o.Return+o.Timeout+o.longer+exact
	if o.Session {
		soonest, latest = min(soonest, o.lostAt), forever
	}
	switch {
	case s.token == o.Result && o.Owner != "" && !s.released:
		s.soonest, s.latest = max(s.soonest, soonest), max(s.latest, latest)
		return []any{s}
	case s.token < o.Result && (s.released || o.Return >= s.soonest):
		return []any{lockState{token: o.Result, soonest: soonest, latest: latest, value: s.value}}
	}
	return nil
}

func relocked(s lockState, o step) lockState {
	switch {
	case o.Outcome == history.Unknown:
		s.soonest, s.latest = min(s.soonest, o.Call+o.Timeout-exact), forever
	case o.Session:
		s.soonest, s.latest = min(s.soonest, o.Call+o.Timeout-exact), forever
	default:
		s.soonest, s.latest = o.Call+o.Timeout-exact, o.Return+o.Timeout+o.longer+exact
	}
	return s
}
