// A user of LOCK through lockproxy, in the same loop as the older locks.
//
//	lockuser HOST PORT KEY SECONDS-TO-RUN [--timeout S] [--wait] [--pause MS] [--crash]
//
// Without --wait it tries again every 5 to 20 ms; with it, it stands in the queue: LOCK key timeout
// WAIT seconds.
package main

import (
	"flag"
	"math/rand/v2"
	"time"

	"lockproxy/examples/older/worker"
)

type lock struct {
	timeout *float64
	wait    *bool
	token   int64
}

func main() {
	worker.Main("lock", &lock{
		timeout: flag.Float64("timeout", 5, "of the lock, in `s`"),
		wait:    flag.Bool("wait", false, "stand in the queue instead of trying again"),
	})
}

func (l *lock) Acquire(w *worker.Worker) bool {
	for !w.Over() {
		command := []any{"LOCK", w.Key, *l.timeout}
		if *l.wait {
			// Never 0, which waits forever.
			patience := max(time.Until(w.Deadline), 10*time.Millisecond)
			command = append(command, "WAIT", patience.Seconds())
		}
		if token, ok := w.Call(command...).(int64); ok {
			l.token = token
			return true
		}
		w.Report.Failures++
		if !*l.wait {
			w.Sleep(5*time.Millisecond + rand.N(15*time.Millisecond))
		}
	}
	return false
}

func (l *lock) Release(w *worker.Worker) bool {
	return w.Call("UNLOCK", w.Key, l.token) == int64(1)
}
