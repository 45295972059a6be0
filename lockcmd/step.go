package lockcmd

import "context"

// Step is a lock command that has begun and needs one script's answer.
type Step struct {
	*Call  // nil if the command needs no script: Finish it without an answer
	finish func(context.Context, Answer, error) Reply
}

// Finish makes the reply from the answer, or from the failure to get one. A session's Steps are
// begun in the order of its requests, and finished in that order.
func (st Step) Finish(ctx context.Context, a Answer, err error) Reply {
	return st.finish(ctx, a, err)
}

// answered is the Step of a command that needs no script.
func answered(r Reply) Step {
	return Step{finish: func(context.Context, Answer, error) Reply { return r }}
}
