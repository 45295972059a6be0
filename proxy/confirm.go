package proxy

import (
	"strconv"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// EvalConfirmed runs a script as Eval does, and sends WAIT right behind it, on the same connection, before the script's answer has
// come. The connection is the session's own, since WAIT holds up whatever is behind it.
//
// In a cluster it waits for the script's answer first: only then is it known which node has written.
func (s *session) EvalConfirmed(script *lockcmd.Script, keys, args []string, replicas int, timeout time.Duration) (v, acknowledged resp.Value, err error) {
	if s.server.cfg.Locks.Cluster {
		return s.evalThenWait(script, keys, args, replicas, timeout)
	}
	wait := resp.AppendCommand(nil, "WAIT", strconv.Itoa(replicas), strconv.FormatInt(timeout.Milliseconds(), 10))
	var confirmed *passthrough.Answer
	v, err = s.evaluate(func(raw []byte) (resp.Value, error) {
		if confirmed != nil {
			s.await(confirmed) // of the script that the upstream didn't have
		}
		s.pipe.Flush() // see Eval
		if err := s.connect(passthrough.Own); err != nil {
			return resp.Value{}, err
		}
		answers := s.pipe.Calls(raw, wait)
		confirmed = answers[1]
		s.await(answers[0])
		return answers[0].Value()
	}, script, keys, args)
	if confirmed != nil {
		s.await(confirmed)
	}
	if err != nil || v.IsError() {
		return v, resp.Value{}, err
	}
	acknowledged, err = confirmed.Value()
	return v, acknowledged, err
}

// evalThenWait runs a script on a connection of the session's own, and when it has been answered has the node that ran it wait.
func (s *session) evalThenWait(script *lockcmd.Script, keys, args []string, replicas int, timeout time.Duration) (v, acknowledged resp.Value, err error) {
	wait := resp.AppendCommand(nil, lockcmd.WaitAtKey, keys[0], strconv.Itoa(replicas), strconv.FormatInt(timeout.Milliseconds(), 10))
	v, err = s.evaluate(func(raw []byte) (resp.Value, error) {
		s.pipe.Flush() // see Eval
		if err := s.connect(passthrough.Own); err != nil {
			return resp.Value{}, err
		}
		s.pipe.Keep(true) // the node's connection counts: it must be the same
		answer := s.pipe.Call(raw)
		s.await(answer)
		return answer.Value()
	}, script, keys, args)
	if err != nil || v.IsError() {
		s.pipe.Keep(false)
		return v, resp.Value{}, err
	}
	answer := s.pipe.Call(wait)
	s.pipe.Keep(false)
	s.await(answer)
	acknowledged, err = answer.Value()
	return v, acknowledged, err
}

// Lost reports whether the session is about to end, since it can't do without the upstream connection that it has lost.
func (s *session) Lost() bool { return s.pipe.Lost() }
