package lockcmd

import "context"

// Step is a lock command that has begun and needs one script's answer.
type Step struct {
	*Call // nil if the command needs no script: Finish it without an answer
	// Finish makes the reply from the answer, or from the failure to get one. A session's Steps are
	// begun in the order of its requests, and finished in that order.
	Finish func(context.Context, Answer, error) Reply
}

// answered is the Step of a command that needs no script.
func answered(r Reply) Step {
	return Step{Finish: func(context.Context, Answer, error) Reply { return r }}
}
