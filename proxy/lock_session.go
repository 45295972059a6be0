package proxy

import (
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// lockSession is how the lock commands of a session ask the upstream, on the session's goroutine.
type lockSession struct {
	*common
	x       *exchange
	late    *passthrough.Answer // of a script that was given up; nil if there was none
	loading *scriptLoad         // the last one by this session; nil for none
	waits   bool                // the command waits for other clients
	words   []string            // room for the words of a script's request
	request []byte              // room for its bytes
}

// Eval runs a script as this session's client: on its connection, and so as its user, on its
// database and in its order. It waits for the answer.
func (s *lockSession) Eval(c *script.Call) (a script.Answer, err error) {
	return s.askUntil(&chain.Step{Call: c}, c.Until)
}

// Get asks for the value of a key, and waits until a time.
func (s *lockSession) Get(key string, until time.Time) (v resp.Value, err error) {
	do := [][][]byte{{[]byte("GET"), []byte(key)}}
	a, err := s.askUntil(&chain.Step{Do: do, Reads: true}, until)
	if err == nil {
		v, err = resp.ParseValue(a.Raw[0])
	}
	return v, err
}

// askUntil waits for what a step asks for, until a time; zero is for as long as it takes. For a
// confirmation it waits longer, which takes ReplicaTimeout at most.
func (s *lockSession) askUntil(step *chain.Step, until time.Time) (a script.Answer, err error) {
	if s.isLate() { // the route might wait for that
		return a, s.failure(failure.LateError{})
	}
	q := question{Step: step, again: true}
	for !s.settle(&q, nil) {
		if q.phase == confirming {
			until = time.Time{}
		}
		if !s.x.awaitUntil(q.answer, until, false) {
			if s.late = q.answer; q.confirms() {
				s.pipe.Pin(passthrough.Unpinned)
			}
			q.unblock(s)
			return a, s.failure(failure.LateError{
				Answered: q.answer.Done, Late: lateScript{q.answers[0]}})
		}
	}
	return q.got, s.failure(q.err)
}

// isLate reports whether the answer to a script that was given up is still to come.
func (s *lockSession) isLate() bool { return s.late != nil && !s.late.Arrived() }

// lateScript is the answer to a script that comes too late for its command.
type lateScript struct{ to *passthrough.Answer }

// Answer implements failure.LateError's.
func (s lateScript) Answer() (a script.Answer, err error) {
	a.Value, err = s.to.Value()
	return a, err
}

// failure is err, which says if the session has lost the upstream.
func (s *lockSession) failure(err error) error {
	if err != nil && s.pipe.Status().Lost {
		return failure.SessionLost(err)
	}
	return err
}
