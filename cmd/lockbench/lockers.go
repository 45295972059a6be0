package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/rueidis/rueidislock"
)

// locker is one client and one lock. Each of the two calls returns when it has succeeded or can't.
type locker interface {
	acquire() error
	release() error
}

// The locks of all kinds last longer than any run, so that none expires.
const (
	lockTimeout   = maxRun
	lockSeconds   = "120"
	waitUnlimited = "0"
)

var errNotReleased = errors.New("the release says that the lock was not held")

// proxyLock is LOCK and UNLOCK; with wait, LOCK … WAIT.
type proxyLock struct {
	*rawClient // nil if another library asks
	ask        func(args ...string) (int64, error)
	key        string
	wait       bool
	token      int64
}

func (l *proxyLock) acquire() (err error) {
	args := []string{"LOCK", l.key, lockSeconds, "WAIT", waitUnlimited}
	if !l.wait {
		args = args[:3]
	}
	l.token, err = l.ask(args...)
	if err == nil && l.token == 0 {
		err = errors.New("LOCK answered null")
	}
	return err
}

func (l *proxyLock) release() error {
	n, err := l.ask("UNLOCK", l.key, strconv.FormatInt(l.token, 10))
	if err == nil && n != 1 {
		err = errNotReleased
	}
	return err
}

type rueidisLock struct {
	ctx    context.Context
	locker rueidislock.Locker
	key    string
	cancel context.CancelFunc
}

func (l *rueidisLock) acquire() (err error) {
	_, l.cancel, err = l.locker.WithContext(l.ctx, l.key)
	return err
}

func (l *rueidisLock) release() error {
	l.cancel() // returns when the key is deleted
	return nil
}

type bsmLock struct {
	ctx    context.Context
	client *redislock.Client
	key    string
	retry  redislock.RetryStrategy
	held   *redislock.Lock
}

func (l *bsmLock) acquire() (err error) {
	l.held, err = l.client.Obtain(l.ctx, l.key, lockTimeout,
		&redislock.Options{RetryStrategy: l.retry})
	return err
}

func (l *bsmLock) release() error { return l.held.Release(l.ctx) }

// setnxLock is the oldest recipe, L1: SETNX of the time at which the lock expires; if that fails
// GET, and GETSET once it has expired. pause 0 tries again at once.
type setnxLock struct {
	*rawClient
	key   string
	pause time.Duration
}

func (l *setnxLock) acquire() error {
	for {
		now := time.Now().Unix()
		value := strconv.FormatInt(now+int64(lockTimeout/time.Second)+1, 10)
		r, err := l.do("SETNX", l.key, value)
		if err != nil || r.n == 1 {
			return err
		}
		if r, err = l.do("GET", l.key); err != nil {
			return err
		}
		if !r.null && expired(r.text, now) {
			if r, err = l.do("GETSET", l.key, value); err != nil || r.null || expired(r.text, now) {
				return err
			}
		}
		time.Sleep(l.pause)
	}
}

func expired(value string, now int64) bool {
	at, _ := strconv.ParseInt(value, 10, 64)
	return at <= now
}

func (l *setnxLock) release() error {
	_, err := l.do("DEL", l.key)
	return err
}

// evalLock is L4 with its release put right: scripts by EVAL, three tries at once, then the pause
// of its caller.
type evalLock struct {
	*rawClient
	key   string
	pause time.Duration
}

const evalAcquire = `local now, timeout = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call('SETNX', KEYS[1], now + timeout + 1) == 1 then
  redis.call('EXPIRE', KEYS[1], timeout + 1)
  return 0
end
local value = redis.call('GET', KEYS[1])
if not value then return 1 end
if now < tonumber(value) then return 2 end
if redis.call('GETSET', KEYS[1], now + 4 + timeout + 1) == value then
  redis.call('EXPIRE', KEYS[1], timeout + 1)
  return 0
end
return 3`

const evalRelease = `local value = redis.call('GET', KEYS[1])
if value and tonumber(ARGV[1]) < tonumber(value) then return redis.call('DEL', KEYS[1]) end
return 0`

func (l *evalLock) acquire() error {
	for ; ; time.Sleep(l.pause) {
		for range 3 {
			r, err := l.do("EVAL", evalAcquire, "1", l.key, strconv.FormatInt(time.Now().Unix(),
				10), lockSeconds)
			if err != nil || r.n == 0 {
				return err
			}
		}
	}
}

func (l *evalLock) release() error {
	r, err := l.do("EVAL", evalRelease, "1", l.key, strconv.FormatInt(time.Now().Unix(), 10))
	if err == nil && r.n != 1 {
		err = errNotReleased
	}
	return err
}
