package passthrough

import (
	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

// Answer is a future reply. Done is closed when it has arrived.
type Answer struct {
	Done chan struct{}
	raw  []byte
	err  error

	call    *Call      // what it answers; nil for other requests
	with    *callBatch // what call goes with
	calls   int        // how many go with call by a home, if it is their first; until they come
	refused bool       // raw is the reply to the whole batch
	waiter  Waiter     // nil for none
}

// Waiter is told that Answers have arrived, after Done of each is closed. In an event loop it gets
// the iteration. A goroutine that reads the upstream, or one that ends the client, gives nil, and
// then Answered may not use the Pipe.
type Waiter interface{ Answered(it *eventloop.Iteration) }

func (a *Answer) wait() {
	if !a.Arrived() {
		loopguard.MayWait()
		<-a.Done
	}
}

// Value waits for the reply and decodes it. The error is an *upstream.Error if the connection was
// lost first.
func (a *Answer) Value() (resp.Value, error) {
	a.wait()
	if a.err != nil {
		return resp.Value{}, a.err
	}
	return resp.ParseValue(a.raw)
}

// Raw waits for the reply and returns its bytes.
func (a *Answer) Raw() ([]byte, error) {
	a.wait()
	return a.raw, a.err
}

// Arrived reports whether Done is closed.
func (a *Answer) Arrived() bool { return isClosed(a.Done) }

func isClosed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Refused reports whether the reply is an error by which Redis answered several Calls that went
// together. They go alone for a second.
func (a *Answer) Refused() bool {
	a.wait()
	if a.refused {
		a.with.pause()
	}
	return a.refused
}

// fail ends the Answer without a reply. The client's mu is held.
func (a *Answer) fail(err error) {
	a.err = err
	close(a.Done)
	if a.waiter != nil {
		a.waiter.Answered(nil)
	}
}
