package proxy

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// question is a step of a lock command, with all that it takes to get its answer. A script that
// Redis does not have is loaded, a question that was refused with others is asked again alone, and
// replicas confirm what was written. Nothing in it waits. Its driver calls settle until that
// reports true, each time once answer has arrived: an event loop is told of that, a goroutine waits
// for it.
type question struct {
	*lockcmd.Step
	began  time.Time // when the command did
	shares bool      // a script can go with others'
	again  bool      // a route that has failed is tried again

	// answer is what the question waits for. If it is nil, the question is settled, or must be
	// asked.
	answer  *passthrough.Answer
	answers []*passthrough.Answer // to what was asked last; answer is the last of them
	askedAt time.Time
	phase   phaseOfQuestion
	asleep  bool        // the step waits for other clients
	source  bool        // the script is sent by its source
	loads   int         // of others that it has waited for
	load    *scriptLoad // that it has begun; nil for none

	blocked   bool      // CLIENT UNBLOCK is answered here: see blockedClients
	confirm   []string  // what a confirmation is asked for by
	confirmAt time.Time // when it was first asked for

	got     script.Answer
	err     error // why there is none
	settled bool
}

// phaseOfQuestion says what answer is.
type phaseOfQuestion uint8

const (
	asking     phaseOfQuestion = iota // the answer, or replies to Commands
	pausing                           // the end of a pause, or of another session's load
	confirming                        // the confirmation of a script that has given something
)

// due is when the question must be looked at again, answered or not; zero is never. A confirmation
// takes ReplicaTimeout, and as long as the script before it, if the connection is not silent.
func (q *question) due() time.Time {
	if q.phase == confirming && !q.Until.IsZero() {
		took := q.confirmAt.Sub(q.askedAt)
		return q.confirmAt.Add(q.Call().Confirm.Within + took + confirmSilence)
	}
	return q.Until
}

// confirmSilence is how much longer the answer to a confirmation is waited for.
const confirmSilence = time.Second

// confirms reports whether replicas may have to confirm what is answered.
func (q *question) confirms() bool {
	c := q.Call()
	return c != nil && c.Confirm.Needed()
}

// goesTogether reports whether it is asked together with other sessions' scripts.
func (q *question) goesTogether() bool {
	c := q.Call()
	return q.shares && c != nil && len(c.More) == 0 && !q.source && !q.confirms()
}

// end settles the question.
func (q *question) end(a script.Answer, err error) { q.got, q.err, q.settled = a, err, true }

// await makes the question wait for the last of some answers, if there are any.
func (q *question) await(answers []*passthrough.Answer) bool {
	if len(answers) == 0 {
		return false
	}
	q.answers, q.answer = answers, answers[len(answers)-1]
	return true
}

// goOn takes a lock command on, from its present step, as far as answers have come. ended says that
// it has its reply. Otherwise it is asleep, or q.answer is what it waits for; if that is nil only a
// goroutine can go on: it may wait for a connection.
func (s *lockSession) goOn(q *question, it *eventloop.Iteration) (reply lockcmd.Reply, ended bool) {
	for s.settle(q, it) {
		reply, next := q.Finish(q.got, q.err)
		switch next {
		case nil:
			return reply, true
		case q.Step:
			q.asleep, q.settled = true, false
			return reply, false
		}
		*q = question{Step: next, began: q.began, shares: q.shares, again: q.again}
	}
	return reply, false
}

// settle asks, and asks again what has to be, as far as answers have come. It reports whether the
// question has its answer. It waits for none, but in a goroutine, where it is nil, for a
// connection.
func (s *lockSession) settle(q *question, it *eventloop.Iteration) bool {
	for !q.settled {
		switch {
		case q.Asks == lockcmd.Asks(lockcmd.Turn{}):
			q.end(script.Answer{}, s.x.uselessness())
			return true
		case q.Asks == nil:
			q.end(script.Answer{}, nil)
		case q.answer == nil && !s.ask(q, it):
			return false
		case q.answer != nil && q.answer.Arrived():
			s.take(q, it)
		case q.answer != nil && !s.givesUp(q):
			return false
		}
	}
	q.err = s.failure(q.err)
	q.unblock(s)
	return true
}

// givesUp ends a question that was not answered in time. Only commands that wait put one. Their
// client is owed no other answer.
func (s *lockSession) givesUp(q *question) bool {
	if due := q.due(); due.IsZero() || time.Now().Before(due) {
		return false
	}
	if s.late = q.answer; q.confirms() {
		s.pipe.Pin(passthrough.Unpinned)
	}
	q.answer = nil
	if q.phase == confirming { // its outcome is unknown, as that of one whose connection is lost
		q.end(script.Answer{}, &upstream.Error{Addr: s.server.cfg.Upstream.Addr, Sent: true,
			Err: failure.ErrUnanswered})
		return true
	}
	q.end(script.Answer{}, failure.LateError{Answered: s.late.Done, Late: lateScript{q.answers[0]}})
	return true
}

// unblock ends what CLIENT UNBLOCK is answered here for.
func (q *question) unblock(s *lockSession) {
	if q.blocked {
		q.blocked = false
		s.server.blocked.end(s.common)
	}
}

// passes waits until what the session's home owes has come. It reports false, and ends the
// question, if its time has passed before.
func (s *lockSession) passes(q *question) bool {
	barrier := s.pipe.Barrier()
	if s.x.awaitUntil(barrier, q.Until) {
		return true
	}
	s.late = barrier
	q.end(script.Answer{}, failure.LateError{})
	return false
}

// ask asks what is to be asked next. In an event loop it reports false if it would have to wait.
func (s *lockSession) ask(q *question, it *eventloop.Iteration) bool {
	pause, pauses := q.Asks.(lockcmd.Pause)
	asked, call := q.Commands(), q.Call()
	switch {
	case !q.Until.IsZero() && s.isLate(): // the route might wait for that
		q.end(script.Answer{}, failure.LateError{})
		return true
	case asked.Further && time.Since(q.began) > lockcmd.GoneFor && s.x.in.gone():
		q.end(script.Answer{}, lockcmd.ErrOverdue)
		return true
	case pauses:
		done, told := make(chan struct{}), s.pipe.Waiter
		q.phase, q.answer = pausing, &passthrough.Answer{Done: done}
		time.AfterFunc(time.Duration(pause), func() {
			close(done)
			told.Answered(nil)
		})
		return true
	case q.phase == confirming: // by the route of the script: see Kept
		return q.await(s.pipe.Do(it, resp.AppendCommand(nil, q.confirm...)))
	}
	way := passthrough.Apart
	switch {
	case call == nil && !asked.Reads || q.confirms(): // WAIT holds up everything behind it
		way = passthrough.Home
	case call == nil:
		way = passthrough.Shared // the client reads, not the proxy
	case it == nil && s.pipe.AwaitsApart() && !s.passes(q):
		return true
	}
	if it == nil && s.pipe.AwaitsJudgement() && !s.passes(q) {
		return true
	}
	if q.again && it == nil {
		s.pipe.Flush(nil)
	}
	if err := s.x.routeUntil(way, q.Until, it); err != nil {
		if it == nil {
			q.end(script.Answer{}, err)
		}
		return it == nil
	}
	q.askedAt = time.Now()
	if s.waits { // perhaps it has a home since
		s.pipe.LearnID(it == nil)
	}
	switch {
	case call == nil:
		raws := make([][]byte, len(asked.List))
		for i, command := range asked.List {
			raws[i] = resp.AppendCommand(nil, command...)
		}
		return q.await(s.pipe.Do(it, raws...))
	case q.goesTogether():
		q.answer = s.pipe.Ask(&passthrough.Call{SHA: call.Script.SHA, Name: call.Script.Name,
			Keys: call.Keys[:], Args: call.Args[:]}, it)
		q.answers = append(q.answers[:0], q.answer)
		return q.answer != nil
	}
	if q.source && !s.loadTogether(call, it) { // this is no retry: nothing has run
		return false
	}
	if q.confirms() {
		// Only the answer shows whether it has given anything, and in a cluster which node has
		// written: WAIT must go by the same connection.
		s.pipe.Pin(passthrough.Kept)
		if !q.blocked { // a CLIENT UNBLOCK on its way could meet the WAIT that follows
			q.blocked = true
			s.server.blocked.begin(s.common, false)
		}
	}
	return q.await(s.pipe.Do(it, s.scriptRequest(call, q.source)))
}

// take takes what the question has waited for. It settles the question, or has it asked again.
func (s *lockSession) take(q *question, it *eventloop.Iteration) {
	phase := q.phase
	if q.phase, q.answer = asking, nil; q.load != nil {
		s.server.scripts.end(q.load, it)
		q.load = nil
	}
	switch asked := q.Asks.(type) {
	case lockcmd.Pause:
		q.end(script.Answer{}, nil)
	case lockcmd.Commands:
		raws, err := s.repliesTo(q, asked.List)
		q.end(script.Answer{Raw: raws}, err)
	case lockcmd.Script:
		if phase != pausing {
			s.takeScript(q, phase)
		}
	}
	if q.settled && q.confirms() {
		s.pipe.Pin(passthrough.Unpinned)
	}
}

// takeScript is take for the answer to a script, or to what follows it.
func (s *lockSession) takeScript(q *question, phase phaseOfQuestion) {
	first := q.answers[0]
	v, err := first.Value()
	switch {
	case phase == confirming:
		s.takeConfirmation(q, v, err)
	case err != nil:
		q.end(script.Answer{}, err)
	case bytes.HasPrefix(v.Text, noScript) && v.IsError(): // nothing has run
		s.missing(q)
	case leftOut(v), denied(first, v): // it has not run
		q.shares = false
	case first.Refused() && bytes.HasPrefix(v.Text, []byte("ERR")): // the batch was ended half way
		q.end(script.Answer{}, &upstream.Error{Addr: s.server.cfg.Upstream.Addr, Sent: true,
			Err: errors.New(string(v.Text))})
	case q.Call().Confirms(script.Answer{Value: v}):
		q.got.Value, q.phase, q.confirmAt = v, confirming, time.Now()
		q.confirm = q.Call().ConfirmRequest(s.server.cfg.Locks.Cluster)
	default:
		q.end(script.Answer{Value: v}, nil)
	}
}

// takeConfirmation takes what confirms a script that has run. The script's outcome is unknown if
// there is no answer, whatever has become of the question.
func (s *lockSession) takeConfirmation(q *question, v resp.Value, err error) {
	var lost *upstream.Error
	switch {
	case errors.As(err, &lost):
		q.end(script.Answer{}, &upstream.Error{Addr: lost.Addr, Sent: true, Err: lost.Err})
		return
	case err != nil:
		q.end(script.Answer{}, err)
		return
	}
	q.got.Confirmed = v
	q.confirm = q.Call().ConfirmAgain(s.server.cfg.Locks.Cluster, q.got, time.Since(q.confirmAt))
	if q.confirm == nil {
		q.end(q.got, nil)
		return
	}
	q.phase = confirming
}

// missing has a script loaded that the upstream does not have: by this session, or by another that
// has found that first. Then the question is asked again.
func (s *lockSession) missing(q *question) {
	call, cluster := q.Call(), s.server.cfg.Locks.Cluster
	load, mine := s.server.scripts.begin(cluster, call.Keys[0], q.askedAt, s.pipe.Waiter)
	switch {
	case mine:
		s.loading, q.load, q.source = load, load, true
	case load == s.loading && !cluster: // it goes behind that
		q.source = !slices.Contains(load.scripts, call.Script)
	case q.loads == maxLoads:
		q.source = true
	default:
		q.loads++
		q.phase, q.answer = pausing, &passthrough.Answer{Done: load.done}
	}
}

// repliesTo are the replies to commands, which have arrived. If there are some with an error, one
// of them is that, and the connection goes on.
func (s *lockSession) repliesTo(
	q *question, list [][][]byte,
) (replies [][]byte, err error) {
	replies = make([][]byte, len(q.answers))
	for i, answer := range q.answers {
		raw, failed := answer.Raw()
		switch {
		case failed != nil && raw == nil:
			return nil, failed
		case err == nil:
			err = failed
		}
		if bytes.HasPrefix(raw, []byte("+QUEUED")) && lookup(list[i][0]).Class == commands.Other {
			s.pipe.Pin(passthrough.ForGood)
		}
		replies[i] = raw
	}
	return replies, err
}

var noScript = []byte("NOSCRIPT")

// denied reports whether a batch was refused for want of a right, before any of its calls has run.
func denied(a *passthrough.Answer, v resp.Value) bool {
	return a.Refused() && strings.HasPrefix(serverErrorText("", string(v.Text)), "NOPERM")
}

// leftOut reports whether a script was not run because others of its batch took too long.
func leftOut(v resp.Value) bool { return v.Type == '+' && string(v.Text) == "LATER" }

// scriptRequest is valid until the next is made.
func (s *lockSession) scriptRequest(c *script.Call, bySource bool) []byte {
	words := c.AppendWords(s.words[:0], bySource)
	raw := resp.AppendCommand(s.request[:0], words...)
	clear(words) // they would keep the key
	s.words = words
	if s.request = raw; cap(raw) > maxScriptRequest {
		s.request = nil
	}
	return raw
}

// maxScriptRequest bounds the room for a script's request that is kept for the next, bytes: most
// need less than half.
const maxScriptRequest = 1 << 10
