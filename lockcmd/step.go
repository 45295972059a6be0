package lockcmd

import "context"

// Step is a lock command that has begun and needs one script's answer.
type Step struct {
	*Call  // nil if the command needs none: then it is finished with no answer
	finish func(context.Context, Answer, error) Reply
}

// Finish does what follows from the answer, or from the failure to get one, and returns the reply.
// Steps of one session are begun in the order of its requests, and finished in that order.
func (st Step) Finish(ctx context.Context, a Answer, err error) Reply {
	return st.finish(ctx, a, err)
}

// answered is the Step of a command that has its reply already.
func answered(r Reply) Step {
	return Step{finish: func(context.Context, Answer, error) Reply { return r }}
}

// Begin begins a command of which one script's answer is all that it needs, and reports whether it
// is such. A Step that has begun must be finished. args begin with the name; their number has been
// checked.
func (l *Locks) Begin(c *Spec, s Session, args [][]byte) (step Step, ok bool) {
	if c.isHelp(args) {
		return answered(help()), true
	}
	if c.begin == nil {
		return Step{}, false
	}
	return c.begin(l, s, args[1:])
}

// Run runs a command for a session. args are as for Begin.
func (l *Locks) Run(ctx context.Context, c *Spec, s Session, args [][]byte) Reply {
	step, ok := l.Begin(c, s, args)
	if !ok {
		return c.run(l, ctx, s, args[1:])
	}
	var a Answer
	var err error
	if step.Call != nil {
		a, err = s.Eval(step.Call)
	}
	return step.Finish(ctx, a, err)
}
