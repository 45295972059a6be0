// L3: a timestamp lock published for Java with Jedis. Written here in Go with go-redis, step by
// step, since Debian has no Java client for Redis.
//
//	l3 HOST PORT KEY SECONDS-TO-RUN [--timeout MS] [--unit ms|s] [--pause MS] [--crash]
//
// Value at the key: Unix time of expiry in ms, now + timeout. Its known faults, which are left in:
//   - the timeout must be guessed: work that takes longer is not protected, and its lock not
//     released
//   - a crashed holder blocks all others until the timeout
//   - GETSET may return nil, if the lock is released just before: then nobody has the lock that was
//     just written
//   - a losing GETSET replaces the winner's value
//   - it goes by the clients' clocks; replicas aren't considered
//
// It takes a timestamp in seconds for one that expired long ago. To share a key with recipes that
// write seconds, it must count in seconds too: --unit s, which is not in the recipe.
package main

import (
	"flag"
	"strconv"
	"time"

	"lockproxy/examples/older/worker"
)

const retry = 200 * time.Millisecond

type lock struct {
	timeout  *int
	unit     *string
	acquired time.Time
}

func main() {
	worker.Main("l3", &lock{
		timeout: flag.Int("timeout", 3000, "of the lock, in `ms`"),
		unit:    flag.String("unit", "ms", "of the value at the key: ms or s"),
	})
}

func (l *lock) now() int64 {
	if *l.unit == "s" {
		return time.Now().Unix()
	}
	return time.Now().UnixMilli()
}

func (l *lock) expiry() int64 {
	if *l.unit == "s" {
		return l.now() + int64(*l.timeout+999)/1000
	}
	return l.now() + int64(*l.timeout)
}

// Acquire has no end in the recipe; here the run's.
func (l *lock) Acquire(w *worker.Worker) bool {
	for !w.Over() {
		if l.try(w) {
			l.acquired = time.Now()
			return true
		}
		w.Report.Failures++
		w.Sleep(retry)
	}
	return false
}

func (l *lock) try(w *worker.Worker) bool {
	// Not SetNX, which go-redis sends as SET … NX.
	if w.Call("SETNX", w.Key, l.expiry()) == int64(1) {
		return true
	}
	read, ok := w.Call("GET", w.Key).(string)
	if !ok {
		return false
	}
	if old, err := strconv.ParseInt(read, 10, 64); err != nil || old >= l.now() {
		return false
	}
	returned, ok := w.Call("GETSET", w.Key, l.expiry()).(string)
	if !ok {
		w.Report.NilErrors++
	}
	return ok && returned == read
}

func (l *lock) Release(w *worker.Worker) bool {
	if time.Since(l.acquired) < time.Duration(*l.timeout)*time.Millisecond {
		w.Call("DEL", w.Key)
		return true
	}
	return false
}
