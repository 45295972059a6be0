// L5: a timestamp lock published for Java with Lua scripts. Written here in Go with go-redis, step
// by step, since Debian has no Java client for Redis.
//
//	l5 HOST PORT KEY SECONDS-TO-RUN [--timeout MS] [--unit ms|s] [--pause MS] [--crash]
//
// Value at the key: the client's now + timeout, as a number; the recipe leaves the unit to its
// user. Its known faults, which are left in:
//   - it goes by the clients' clocks
//   - one Redis is a single point of failure
//
// The value is the proof of ownership: who finds it changed, by another recipe's losing GETSET too,
// can't release.
package main

import (
	"flag"
	"time"

	"lockproxy/examples/older/worker"
)

const (
	acquireScript = `
local now, timeout = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call('SETNX', KEYS[1], now + timeout) == 1 then return 0 end
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 2 end
if now > tonumber(redis.call('GET', KEYS[1])) then
  redis.call('SET', KEYS[1], now + timeout)
  return 0
end
return 1`

	releaseScript = `
local begin, timeout = tonumber(ARGV[1]), tonumber(ARGV[2])
local value = redis.call('GET', KEYS[1])
if value and tonumber(value) - begin == timeout then
  redis.call('DEL', KEYS[1])
  return 0
end
return 1`
)

const retry = 10 * time.Millisecond // the recipe leaves it to the caller

type lock struct {
	timeout *int
	unit    *string
	begin   int64
}

func main() {
	worker.Main("l5", &lock{
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

func (l *lock) lasts() int64 {
	if *l.unit == "s" {
		return int64(*l.timeout+999) / 1000
	}
	return int64(*l.timeout)
}

func (l *lock) Acquire(w *worker.Worker) bool {
	for !w.Over() {
		l.begin = l.now()
		if w.Call("EVAL", acquireScript, 1, w.Key, l.begin, l.lasts()) == int64(0) {
			return true
		}
		w.Report.Failures++
		w.Sleep(retry)
	}
	return false
}

func (l *lock) Release(w *worker.Worker) bool {
	return w.Call("EVAL", releaseScript, 1, w.Key, l.begin, l.lasts()) == int64(0)
}
