package proxy

import (
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// lockSession is how the lock commands of a session ask the upstream, on the session's goroutine.
type lockSession struct {
	exchange
	late    *passthrough.Answer // of a script that was given up; nil if there was none
	loading *scriptLoad         // the last one by this session; nil for none
	words   []string            // room for the words of a script's request
	request []byte              // room for its bytes
}

// Eval runs a script as this session's client: on its connection, and so as its user, on its
// database and in its order. It waits for the answer.
func (s *lockSession) Eval(c *script.Call) (a script.Answer, err error) {
	until := c.Until
	if c.Confirm.Needed() {
		until = time.Time{} // that takes ReplicaTimeout at most
	}
	return s.askUntil(&chain.Step{Call: c}, until)
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

// askUntil waits for what a step asks for, until a time; zero is for as long as it takes.
func (s *lockSession) askUntil(step *chain.Step, until time.Time) (a script.Answer, err error) {
	if s.late != nil && !s.awaitUntil(s.late, until, false) { // the route might wait for that, too
		return a, s.failure(failure.LateError{})
	}
	s.late = nil
	q := question{Step: step, again: true}
	for !s.settle(&q, nil) {
		if !s.awaitUntil(q.answer, until, false) {
			s.late = q.answer
			return a, s.failure(failure.LateError{Answered: q.answer.Done})
		}
	}
	return q.got, s.failure(q.err)
}

// failure is err, which says if the session has lost the upstream.
func (s *lockSession) failure(err error) error {
	if err != nil && s.pipe.Status().Lost {
		return failure.SessionLost(err)
	}
	return err
}

// runsAs is what a lock command runs as on a connection in this state.
func (s *lockSession) runsAs(state passthrough.State) chain.Client {
	s.client.holder.SetName(state.Name)
	return chain.Client{Holder: &s.client.holder, As: state.AnyProto()}
}

// login is the client's present login, according to the replies so far.
func (s *lockSession) login() names.Identity {
	state, _ := s.pipe.State()
	return state.AnyProto()
}

// lostPush is how long a client may take to read the push that a session lock is lost. Then its
// connection is closed.
const lostPush = 50 * time.Millisecond

// lockLost closes the connection of a client whose session lock has been lost. With RESP3 the
// client gets a push before. The push alone would not do: client libraries drop pushes that they do
// not know.
func (s *lockSession) lockLost(key string, token int64) {
	if state, _ := s.pipe.State(); state.Proto == 3 && s.pipe.Push(encodeLockLost(key, token)) {
		time.AfterFunc(lostPush, s.client.closeRaw)
		return
	}
	s.client.closeRaw()
}
