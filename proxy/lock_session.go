package proxy

import (
	"bytes"
	"strconv"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// lockSession is how the lock commands of a session ask the upstream, on the session's goroutine.
type lockSession struct {
	exchange
	late    *passthrough.Answer // of a script that was given up; nil if there was none
	words   []string            // room for the words of a script's request
	request []byte              // room for its bytes
}

// Eval runs a script as this session's client: on its connection, and so as its user, on its
// database and in its order.
func (s *lockSession) Eval(c *script.Call) (a script.Answer, err error) {
	if c.Confirm.Needed() {
		a, err = s.evalConfirmed(c)
	} else {
		a.Value, err = s.evaluate(s.askNow, c)
	}
	return a, s.failure(err)
}

// failure is err, which says if the session has lost the upstream.
func (s *lockSession) failure(err error) error {
	if err != nil && s.pipe.Status().Lost {
		return lockcmd.SessionLost(err)
	}
	return err
}

// askFor waits for what a step asks for.
func (s *lockSession) askFor(step *lockcmd.Step, began time.Time) (a script.Answer, err error) {
	switch {
	case step.Further && time.Since(began) > lockcmd.GoneFor && s.gone():
		return a, lockcmd.ErrOverdue
	case step.Call != nil:
		return s.Eval(step.Call)
	case step.Pause > 0:
		select {
		case <-time.After(step.Pause):
		case <-s.ctx.Done():
		}
	case len(step.Do) > 0:
		way := passthrough.Home
		if step.Reads {
			way = passthrough.Shared
		}
		if err = s.route(way, nil); err == nil {
			a.Raw, err = s.repliesTo(step, s.pipe.Do(nil, requestsOf(step)...))
		}
	}
	return a, s.failure(err)
}

// requestsOf are the requests of Step.Do.
func requestsOf(step *lockcmd.Step) [][]byte {
	raws := make([][]byte, len(step.Do))
	for i, command := range step.Do {
		raws[i] = resp.AppendCommand(nil, command...)
	}
	return raws
}

// repliesTo waits for the replies to Step.Do.
func (s *lockSession) repliesTo(
	step *lockcmd.Step, answers []*passthrough.Answer,
) ([][]byte, error) {
	replies := make([][]byte, len(answers))
	for i, answer := range answers {
		s.await(answer)
		raw, err := answer.Raw()
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(raw, []byte("+QUEUED")) &&
			lookup(step.Do[i][0]).Class == commands.Other {
			s.pipe.Pin(passthrough.ForGood)
		}
		replies[i] = raw
	}
	return replies, nil
}

// Get asks for the value of a key, and waits until a time.
func (s *lockSession) Get(key string, until time.Time) (resp.Value, error) {
	v, err := s.askNow(resp.AppendCommand(nil, "GET", key), until)
	return v, s.failure(err)
}

// asker sends a request for a script and returns its answer.
type asker func(raw []byte, until time.Time) (resp.Value, error)

// evaluate runs a script through do: by its hash, and if the upstream doesn't have it, by its
// source.
func (s *lockSession) evaluate(do asker, c *script.Call) (resp.Value, error) {
	asked := time.Now()
	v, err := do(s.scriptRequest("EVALSHA", c.Script.SHA, c), c.Until)
	if isNoScript(v, err) {
		v, err = s.evalMissing(do, c, asked)
	}
	return v, err
}

// evalMissing runs a script that the upstream didn't have when it was asked, at a time: by its
// source, unless another session has loaded it since.
func (s *lockSession) evalMissing(
	do asker, c *script.Call, asked time.Time,
) (v resp.Value, err error) {
	for range maxLoads {
		end, mine := s.server.scripts.begin(s.server.cfg.Locks.Cluster, c.Keys[0], asked)
		if mine {
			defer end()
			break
		}
		asked = time.Now()
		v, err = do(s.scriptRequest("EVALSHA", c.Script.SHA, c), c.Until)
		if !isNoScript(v, err) {
			return v, err
		}
	}
	return s.evalSource(do, c)
}

// isNoScript reports whether the upstream has said that it doesn't have a script: nothing has run.
func isNoScript(v resp.Value, err error) bool {
	return err == nil && v.IsError() && bytes.HasPrefix(v.Text, []byte("NOSCRIPT"))
}

// evalSource runs a script by its source, which is no retry: see isNoScript.
func (s *lockSession) evalSource(do asker, c *script.Call) (resp.Value, error) {
	for _, other := range c.Script.Together(s.server.cfg.Locks.Cluster) {
		s.load(other, c.Keys[0])
	}
	return do(s.scriptRequest("EVAL", c.Script.Source, c), c.Until)
}

// load makes the upstream load a script before the next request for key runs, if the user may
// SCRIPT LOAD.
func (s *lockSession) load(script *script.Script, key string) {
	if s.route(passthrough.Shared, nil) == nil {
		words := script.LoadRequest(s.server.cfg.Locks.Cluster, key)
		raw := resp.AppendCommand(nil, words...)
		s.pipe.Relay(passthrough.Request{Raw: raw, Discarded: true}, nil)
	}
}

// scriptRequest is valid until the next is made.
func (s *lockSession) scriptRequest(name, script string, c *script.Call) []byte {
	words := append(s.words[:0], name, script, strconv.Itoa(len(c.Keys)+len(c.More)))
	words = append(append(append(words, c.Keys[:]...), c.More...), c.Args[:]...)
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

// askNow is an asker that waits until a time; zero is without end.
func (s *lockSession) askNow(raw []byte, until time.Time) (resp.Value, error) {
	if s.late != nil && !s.awaitUntil(s.late, until, false) { // route might wait for that, too
		return resp.Value{}, lockcmd.LateError{}
	}
	s.late = nil
	if err := s.retryRoute(passthrough.Shared); err != nil {
		return resp.Value{}, err
	}
	answer := s.pipe.Do(nil, raw)[0]
	if !s.awaitUntil(answer, until, false) {
		s.late = answer
		return resp.Value{}, lockcmd.LateError{Answered: answer.Done}
	}
	return answer.Value()
}

// runsAs is what a lock command runs as on a connection in this state.
func (s *lockSession) runsAs(state passthrough.State) lockcmd.Client {
	s.client.holder.SetName(state.Name)
	return lockcmd.Client{Holder: &s.client.holder, As: state.AnyProto()}
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
