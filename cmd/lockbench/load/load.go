// Package load drives one server with many clients from one thread, so that the generator costs
// little of the machine that it shares with what it measures. Linux only.
//
// Closed loop: each client sends its request again as soon as it is answered. Open loop: requests
// are due at a fixed rate, whatever the server does, and a request's latency counts from when it
// was due, not from when a client was free to send it: a server that stops for a moment is charged
// with all that it kept waiting (no coordinated omission).
package load

import (
	"fmt"
	"time"
)

// Plan is one run.
type Plan struct {
	Request []byte // what a client sends at once: one request, or several that follow each other
	Reply   []byte // what it must be answered, to the byte
	Time    time.Duration
	Rate    float64       // requests/s of all clients together; 0: closed loop
	Grace   time.Duration // how long after the end replies can take; 0: DefaultGrace
}

// Result is what a run came to.
type Result struct {
	Rate float64 // requests answered within Plan.Time, per second
	// of all requests, in no order; of the unanswered, how long they had waited
	Latencies  []time.Duration
	Unanswered int // requests that were due and had no reply when the grace was over
}

// DefaultGrace is Plan.Grace unless that says otherwise.
const DefaultGrace = 2 * time.Second

// WrongReply is a reply that isn't the one that was to come.
type WrongReply struct{ Got, Want []byte }

func (e *WrongReply) Error() string {
	return fmt.Sprintf("answered %q, not %q", start(e.Got), start(e.Want))
}

// start is as much of a reply as is needed to see what it is.
func start(reply []byte) []byte { return reply[:min(len(reply), 80)] }

// schedule says when requests are due: request k at k times the gap, to be sent by client k modulo
// their number.
type schedule struct {
	gap   float64 // ns
	total int
}

func newSchedule(rate float64, d time.Duration) schedule {
	return schedule{gap: float64(time.Second) / rate, total: int(rate * d.Seconds())}
}

// due is in ns from the start of the run.
func (s schedule) due(k int) int64 { return int64(float64(k) * s.gap) }
