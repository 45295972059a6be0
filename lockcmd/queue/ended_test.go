package queue

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// endedWait is a ONCE … WAIT with another one behind it, and what the upstream has given it.
type endedWait struct {
	qs       *Queues
	w, other *Waiter
	release  *HandOver // that names w
	now      time.Time
	given    int64   // the last token: earlier ones are over, since the lock is exclusive
	had      int64   // the token of an earlier command of its connection, which is not released
	unknown  bool    // what the release has given
	released []int64 // what callers were told to release
}

// polled is the answer to a poll or a check of w.
func (e *endedWait) polled(a script.Attempt, err error) {
	if a.Before {
		e.had = a.Token
	} else {
		e.given = max(e.given, a.Token)
	}
	if kept, _ := e.w.Settle(a, err); !kept && a.Token != 0 && !a.Before {
		e.released = append(e.released, a.Token)
	}
}

// ended is the answer to the release that names w.
func (e *endedWait) ended(r Released) {
	e.given, e.unknown = max(e.given, r.Token), r.Unknown != nil
	ends := e.release.End(r, e.now)
	for _, g := range append(ends.Rejected, ends.Abandoned...) {
		e.released = append(e.released, g.Token)
	}
}

// read is the answer to a GET by a waiter: the value is there.
func (e *endedWait) read(by *Waiter) {
	value := "value"
	if given, _ := by.Serve(&value, e.now); given {
		e.released = append(e.released, by.Token)
	}
}

var (
	errNoReplicas = script.NoReplicasError{Outcome: script.NotTaken}
	errUnknown    = fmt.Errorf("lost: %w", failure.ErrLost)
)

// event is something that happens to a wait.
type event struct {
	what string
	// ofRelease says that it ends the release that names the wait. Each release ends once.
	ofRelease bool
	// corrects says that the wait's own command may learn by it, before it has told its client
	// anything, that a lock which it was given is over, or is not needed.
	corrects bool
	happens  func(e *endedWait)
}

func polled(a script.Attempt, err error) func(*endedWait) {
	return func(e *endedWait) { e.polled(a, err) }
}

func ended(r Released) func(*endedWait) { return func(e *endedWait) { e.ended(r) } }

// ends are all ways in which a wait can end.
var ends = []event{
	{what: "its poll takes the lock", happens: polled(script.Attempt{Token: 200}, nil)},
	{what: "its owner has the lock",
		happens: polled(script.Attempt{Token: 200, Renewed: true}, nil)},
	{what: "its connection has the lock",
		happens: polled(script.Attempt{Token: 200, Renewed: true, Before: true}, nil)},
	{what: "its poll lacks replicas", happens: polled(script.Attempt{Token: 200}, errNoReplicas)},
	{what: "another reads the value", happens: func(e *endedWait) { e.read(e.other) }},
	{what: "it reads the value", happens: func(e *endedWait) { e.read(e.w) }},
	{what: "CLIENT UNBLOCK", happens: func(e *endedWait) { e.qs.Unblock(e.w.Connection, true) }},
	{what: "a deadlock", happens: func(e *endedWait) { e.w.refuse(failure.UnblockedError(true)) }},
	{what: "a release gives it the lock", ofRelease: true,
		happens: ended(Released{Done: true, Token: 200, Given: 1})},
	{what: "a release lacks replicas", ofRelease: true,
		happens: ended(Released{Done: true, Token: 200, Given: 1, Missing: errNoReplicas})},
	{what: "it gives up what a release gave it", ofRelease: true, happens: func(e *endedWait) {
		e.ended(Released{Done: true, Token: 200, Given: 1})
		e.w.GiveUp()
		e.released = append(e.released, 200) // by its command
	}},
}

// answers are all that can come for a wait that has ended: to its own scripts, which it waits for,
// and to those of others.
var answers = []event{
	{what: "a poll: it is held", happens: polled(script.Attempt{}, nil)},
	{what: "a poll: unknown", happens: polled(script.Attempt{}, errUnknown)},
	{what: "a poll: taken", corrects: true, happens: polled(script.Attempt{Token: 300}, nil)},
	{what: "a poll: taken, without replicas", corrects: true,
		happens: polled(script.Attempt{Token: 300}, errNoReplicas)},
	{what: "a poll: this was given", happens: polled(script.Attempt{Token: 200}, nil)},
	{what: "a poll: this was given, without replicas",
		happens: polled(script.Attempt{Token: 200}, errNoReplicas)},
	{what: "a poll: taken before", happens: polled(script.Attempt{Token: 100}, nil)},
	{what: "a poll: taken before, without replicas",
		happens: polled(script.Attempt{Token: 100}, errNoReplicas)},
	{what: "a check: its owner has it", corrects: true,
		happens: polled(script.Attempt{Token: 300, Renewed: true}, nil)},
	{what: "a check: its owner has it, without replicas", corrects: true,
		happens: polled(script.Attempt{Token: 300, Renewed: true}, errNoReplicas)},
	{what: "a check: its connection has it",
		happens: polled(script.Attempt{Token: 200, Renewed: true, Before: true}, nil)},
	{what: "its GET", corrects: true, happens: func(e *endedWait) { e.read(e.w) }},
	{what: "another's GET", happens: func(e *endedWait) { e.read(e.other) }},
	{what: "a release: given", ofRelease: true,
		happens: ended(Released{Done: true, Token: 300, Given: 1})},
	{what: "a release: this was given", ofRelease: true,
		happens: ended(Released{Done: true, Token: 200, Given: 1})},
	{what: "a release: given, without replicas", ofRelease: true,
		happens: ended(Released{Done: true, Token: 300, Given: 1, Missing: errNoReplicas})},
	{what: "a release: given before", ofRelease: true,
		happens: ended(Released{Done: true, Token: 100, Given: 1})},
	{what: "a release: nobody was given it", ofRelease: true,
		happens: ended(Released{Done: true, Polls: true})},
	{what: "a release: unknown", ofRelease: true,
		happens: ended(Released{Failed: true, Unknown: errUnknown})},
	{what: "what follows a poll", happens: func(e *endedWait) {
		e.w.EndPoll(script.Attempt{}, e.now)
		e.w.EndShared(nil, script.Attempt{}, nil, nil)
		e.w.PollAfter(errUnknown)
		e.w.PollFailed(errUnknown, e.now)
		e.w.Answered(true)
		e.w.PollEnded()
	}},
}

// Once a wait has ended, no answer that comes for it changes how: whose the lock is, who has the
// value, which error the client is told. CLIENT UNBLOCK and the search for deadlocks are told that
// it has ended. What the upstream has given it is its own, or is released.
func TestAnswersForAWaitThatHasEnded(t *testing.T) {
	for _, end := range ends {
		for _, answer := range answers {
			for _, named := range []bool{false, true} { // by a release that is under way
				both := end.ofRelease && answer.ofRelease
				if both || (end.ofRelease || answer.ofRelease) && !named {
					continue
				}
				for _, alone := range []bool{false, true} { // nobody else waits any more
					name := fmt.Sprintf("%s, then %s/named: %t/alone: %t", end.what, answer.what,
						named, alone)
					t.Run(name, func(t *testing.T) { endThenAnswer(t, end, answer, named, alone) })
				}
			}
		}
	}
}

func endThenAnswer(t *testing.T, end, answer event, named, alone bool) {
	now := time.Unix(1e9, 0)
	e := &endedWait{qs: New(&background.Ways{}), now: now.Add(time.Second)}
	join := func(connection string) *Waiter {
		r := script.Request{Key: "claim", Once: true, Connection: connection, Number: "1"}
		w, _ := e.qs.Join(r, names.Identity{}, 0, now)
		return w
	}
	e.w, e.other = join("w"), join("other")
	if named {
		offer := e.qs.Of(e.w.ID()).Offer(names.Identity{}, true, e.now)
		if e.release = &offer; offer.Named[0] != e.w {
			t.Fatal("the release does not name it")
		}
	}
	end.happens(e)
	if alone {
		e.other.End(nil)
	}
	before := e.outcome()
	again := e.qs.Unblock("w", false) || e.w.Refuse(failure.UnblockedError(true))
	if again || e.outcome() != before {
		t.Errorf("it has ended as %+v, and others end it: %+v", before, e.outcome())
	}
	answer.happens(e)
	after := e.outcome()
	if after != before && !(before.state == granted && answer.corrects) {
		t.Errorf("it has ended as %+v, and now as %+v", before, after)
	}
	d := e.w.End(nil)
	if d.Won != (after.state == granted) || d.Found != after.found ||
		!errors.Is(d.Err, after.refused) {
		t.Errorf("it has ended as %+v, and its command hears of %+v", after, d)
	}
	has := d.Won && after.token == e.given
	if e.given > e.had && !slices.Contains(e.released, e.given) && !has {
		t.Errorf("nobody has or releases token %d: it has ended as %+v", e.given, after)
	}
	if e.unknown && !d.Won && !slices.Contains(e.released, 0) {
		t.Error("a release may have given it the lock, and nobody releases that")
	}
	if d.Won && slices.Contains(e.released, after.token) {
		t.Errorf("it has token %d, which is released", after.token)
	}
}

// outcome is how a wait stands.
type outcome struct {
	state   waitState
	token   int64
	found   *string
	refused error
}

func (e *endedWait) outcome() outcome {
	o := outcome{state: e.w.state, found: e.w.found, refused: e.w.rejected}
	if o.state == granted {
		o.token = e.w.Token
	}
	return o
}

// CLIENT UNBLOCK has told that it has ended a wait. Whatever a poll finds out then, the client hears
// that, unless its lock may have been taken: also if the proxy drains meanwhile.
func TestAnEndThatWasToldIsTheReply(t *testing.T) {
	unblocked := failure.UnblockedError(true)
	for _, c := range []struct{ poll, want error }{
		{nil, unblocked},
		{script.ServerError("OOM command not allowed"), unblocked},
		{script.ServerError("NOPERM this user"), unblocked},
		{errNoReplicas, unblocked},
		{errUnknown, errUnknown},
		{failure.ErrGone, unblocked},
	} {
		qs := New(&background.Ways{})
		w, _ := qs.Join(script.Request{Key: "k", Number: "1", Connection: "c"}, names.Identity{}, 0,
			time.Now())
		if !qs.Unblock("c", true) {
			t.Error("it does not wait")
		}
		if got := w.End(c.poll).Err; got != c.want {
			t.Errorf("the poll's error is %v: %v, want %v", c.poll, got, c.want)
		}
	}
}
