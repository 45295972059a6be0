package proxy

import (
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// evalConfirmed is Eval for a script that must be confirmed. It sends WAIT or WAITAOF right behind
// the script, on the same connection, before the script has been answered. The connection is the
// session's own, since WAIT holds up everything behind it.
//
// In a cluster it waits for the script's answer first: only then is it known which node has
// written.
func (s *lockSession) evalConfirmed(c *script.Call) (a script.Answer, err error) {
	cluster := s.server.cfg.Locks.Cluster
	wait := resp.AppendCommand(nil, c.ConfirmRequest(cluster)...)
	if cluster {
		return s.evalThenWait(c, wait)
	}
	var confirmed *passthrough.Answer
	a.Value, err = s.evaluate(func(raw []byte, _ time.Time) (resp.Value, error) {
		if confirmed != nil {
			s.await(confirmed) // of the script that the upstream didn't have
		}
		if err := s.retryRoute(passthrough.Home); err != nil {
			return resp.Value{}, err
		}
		answers := s.pipe.Do(nil, raw, wait)
		confirmed = answers[1]
		s.await(answers[0])
		return answers[0].Value()
	}, c)
	if confirmed != nil {
		s.await(confirmed)
	}
	if err == nil && !a.IsError() {
		a.Confirmed, err = confirmed.Value()
	}
	return a, err
}

// evalThenWait runs a script on the session's own connection, and then makes the node that ran it
// wait.
func (s *lockSession) evalThenWait(c *script.Call, wait []byte) (a script.Answer, err error) {
	a.Value, err = s.evaluate(func(raw []byte, _ time.Time) (resp.Value, error) {
		if err := s.retryRoute(passthrough.Home); err != nil {
			return resp.Value{}, err
		}
		s.pipe.Pin(passthrough.Pinned) // the node's connection counts: it must be the same
		return s.ask(raw).Value()
	}, c)
	if err != nil || a.IsError() {
		s.pipe.Pin(passthrough.Unpinned)
		return a, err
	}
	answer := s.pipe.Do(nil, wait)[0]
	s.pipe.Pin(passthrough.Unpinned)
	s.await(answer)
	a.Confirmed, err = answer.Value()
	return a, err
}
