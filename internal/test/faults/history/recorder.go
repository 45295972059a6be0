//go:build linux

package history

import "sync"

// Recorder collects what several clients do. Its methods can be called from any goroutine.
type Recorder struct {
	mu    sync.Mutex
	ops   []*Op // guarded by mu
	taken int64 // guarded by mu
}

// Begin records an invocation, and returns it for End. It sets Call.
func (r *Recorder) Begin(o Op) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	op := &o
	r.ops = append(r.ops, op)
	op.Call = Now()
	return op
}

// End records a completion; change sets the outcome. It sets Return.
func (r *Recorder) End(op *Op, change func(*Op)) {
	now := Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	change(op)
	if op.Outcome != Unknown {
		op.Return = now
	}
	if op.Acquired() {
		r.taken++
	}
}

// Taken is how many locks clients have taken since the Recorder was made.
func (r *Recorder) Taken() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// Add records an operation that is over.
func (r *Recorder) Add(o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, &o)
}

// Drain returns what was recorded since the last Drain. No operation must be in flight.
func (r *Recorder) Drain() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	ops := make([]Op, len(r.ops))
	for i, op := range r.ops {
		ops[i] = *op
	}
	r.ops = nil
	return ops
}
