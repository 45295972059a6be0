package lockcmd

import "context"

// Step is a lock command that has begun and needs one script's answer.
type Step struct {
	*Call // nil if the command needs no script: Finish it without an answer
	// Finish takes the answer, or the failure to get one. It returns the reply, or the step that
	// follows. Event loops call it, so it never waits: what takes another answer is another step,
	// or a job of the timers. A session's Steps are begun in the order of its requests, and finished
	// in that order.
	Finish func(context.Context, Answer, error) (Reply, *Step)
}

// answered is the Step of a command that needs no script.
func answered(r Reply) Step {
	return Step{Finish: func(context.Context, Answer, error) (Reply, *Step) { return r, nil }}
}
