package lockcmd

import (
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

func (l *locking) beginRelock(client Client, args [][]byte) *Step {
	p, err := syntax.ParseToken(args[1], syntax.WantToken)
	if err != nil {
		return chain.Answered(chain.Failed(err))
	}
	timeout, err := syntax.ParseTimeout(args[2], l.cfg.MaxTimeout)
	if err != nil {
		return chain.Answered(chain.Failed(err))
	}
	id, asked := names.Lock{DB: client.As.DB, Key: string(args[0])}, monotonic.Now()
	c := l.Scripts.Relock(id, p.Value, timeout, false)
	return &Step{Call: c, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		done, err := c.Ints(1, answer, err)
		if err == nil && done[0] == 1 {
			err = answer.Unconfirmed(c.Confirm, script.UnsafeTimeout)
		}
		if err != nil {
			return chain.Failed(err), nil
		}
		if done[0] == 1 {
			l.renewals.Relocked(client.Holder, id, p, timeout, asked)
		}
		return chain.Int(done[0]), nil
	}}
}
