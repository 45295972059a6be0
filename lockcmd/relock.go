package lockcmd

import (
	"context"

	"lockproxy/internal/monotonic"
)

func (r *renewals) beginRelock(s Session, args [][]byte) (step Step, ok bool) {
	p, err := parseToken(args[1], wantToken)
	if err != nil {
		return answered(errorReply(err)), true
	}
	timeout, err := parseTimeout(args[2], r.cfg.MaxTimeout)
	if err != nil {
		return answered(errorReply(err)), true
	}
	id, asked := LockID{s.Identity().DB, string(args[0])}, monotonic.Now()
	c := r.relockCall(id, p.value, timeout, false)
	return Step{c, func(_ context.Context, answer Answer, err error) (Reply, *Step) {
		done, err := c.ints(1, answer, err)
		if err == nil && done[0] == 1 {
			err = answer.unconfirmed(c.Confirm, notLonger)
		}
		if err != nil {
			return errorReply(err), nil
		}
		if done[0] == 1 {
			r.relocked(s.Holder(), id, p, timeout, asked)
		}
		return intReply(done[0]), nil
	}}, true
}
