package proxy

import (
	"bytes"
	"strconv"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// lockSession is a session as lock commands see it: their lockcmd.Session.
type lockSession struct {
	exchange
	identity upstream.Identity   // of the lock command that is running
	late     *passthrough.Answer // of a script that was given up; nil if there was none
	words    []string            // room for the words of a script's request
	request  []byte              // room for its bytes
}

// Eval runs a script as this session's client: on its connection, and so as its user, on its
// database and in its order.
func (s *lockSession) Eval(c *lockcmd.Call) (a lockcmd.Answer, err error) {
	if c.Confirm.Needed() {
		return s.evalConfirmed(c)
	}
	a.Value, err = s.evaluate(s.askNow, c)
	return a, err
}

// asker sends a request for a script and returns its answer.
type asker func(raw []byte, until time.Time) (resp.Value, error)

// evaluate runs a script through do: by its hash, and if the upstream doesn't have it, by its
// source.
func (s *lockSession) evaluate(do asker, c *lockcmd.Call) (resp.Value, error) {
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
	do asker, c *lockcmd.Call, asked time.Time,
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
func (s *lockSession) evalSource(do asker, c *lockcmd.Call) (resp.Value, error) {
	for _, other := range c.Script.Together(s.server.cfg.Locks.Cluster) {
		s.load(other, c.Keys[0])
	}
	return do(s.scriptRequest("EVAL", c.Script.Source, c), c.Until)
}

// load makes the upstream load a script before the next request for key runs, if the user may
// SCRIPT LOAD.
func (s *lockSession) load(script *lockcmd.Script, key string) {
	if s.route(passthrough.Shared) == nil {
		words := script.LoadRequest(s.server.cfg.Locks.Cluster, key)
		raw := resp.AppendCommand(nil, words...)
		s.pipe.Relay(passthrough.Request{Raw: raw, Discarded: true})
	}
}

// scriptRequest is valid until the next is made.
func (s *lockSession) scriptRequest(name, script string, c *lockcmd.Call) []byte {
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
	if s.late != nil && !s.awaitUntil(s.late, until) { // route might wait for that, too
		return resp.Value{}, lockcmd.LateError{}
	}
	s.late = nil
	if err := s.retryRoute(passthrough.Shared); err != nil {
		return resp.Value{}, err
	}
	answer := s.pipe.Do(raw)[0]
	if !s.awaitUntil(answer, until) {
		s.late = answer
		return resp.Value{}, lockcmd.LateError{Answered: answer.Done}
	}
	return answer.Value()
}

// Do sends commands of the proxy's own together, by the client's own connection, and returns their
// replies.
func (s *lockSession) Do(cmds ...[][]byte) ([][]byte, error) {
	if err := s.route(passthrough.Home); err != nil {
		return nil, err
	}
	raws := make([][]byte, len(cmds))
	for i, command := range cmds {
		raws[i] = resp.AppendCommand(nil, command...)
	}
	replies := make([][]byte, len(cmds))
	for i, answer := range s.pipe.Do(raws...) {
		s.await(answer)
		raw, err := answer.Raw()
		if err != nil {
			return nil, err
		}
		if lookup(cmds[i][0]).Class == commands.Other && bytes.HasPrefix(raw, []byte("+QUEUED")) {
			s.pipe.Pin(passthrough.ForGood)
		}
		replies[i] = raw
	}
	return replies, nil
}

// actAs notes as whom the lock command that begins is run.
func (s *lockSession) actAs(state passthrough.State) {
	s.identity = state.Identity
	s.client.holder.SetName(state.Name)
}

// Identity is what the running lock command runs as, and on which database.
func (s *lockSession) Identity() lockcmd.Identity {
	return asIdentity(s.identity)
}

func asIdentity(id upstream.Identity) lockcmd.Identity {
	return lockcmd.Identity{User: id.User, Password: id.Password, LoggedIn: id.LoggedIn, DB: id.DB}
}

// Login is as whom the client is logged in by now, according to the replies so far.
func (s *lockSession) Login() lockcmd.Identity {
	state, _ := s.pipe.State()
	return asIdentity(state.Identity)
}

// Holder is this connection as the holder of locks.
func (s *lockSession) Holder() *lockcmd.Holder { return &s.client.holder }

// lostPush is how long a client may take to read the push that a session lock is lost. Then its
// connection is closed.
const lostPush = 50 * time.Millisecond

// LockLost closes the connection of a client whose session lock has been lost. With RESP3 the
// client gets a push before. The push alone would not do: client libraries drop pushes that they do
// not know.
func (s *lockSession) LockLost(key string, token int64) {
	if state, _ := s.pipe.State(); state.Proto == 3 && s.pipe.Push(encodeLockLost(key, token)) {
		time.AfterFunc(lostPush, s.client.closeRaw)
		return
	}
	s.client.closeRaw()
}
