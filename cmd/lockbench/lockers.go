package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// locker is one client and one lock. acquire waits for the lock.
type locker interface {
	acquire() error
	release() error
}

// contender is a way to lock. open connects n clients, and each wants the lock that key names.
type contender struct {
	name    string // of the way
	proxied bool   // by lockproxy
	open    func(f *field, n int, key keys) ([]locker, error)
}

// keys names the lock of a client.
type keys = func(i int) string

// field is the servers and clients of a run, and closes all clients after it.
type field struct {
	*bench
	ctx     context.Context // of the run
	closers []func()
}

func (f *field) close() {
	for _, c := range f.closers {
		c()
	}
}

// The locks of all kinds last longer than any run, so that none expires.
const (
	lockTimeout = maxRun
	lockSeconds = "180"
)

// dial connects a light client, whose commands wait no longer than the run.
func (f *field) dial(addr string) (*client, error) {
	c, err := dial(addr)
	if err == nil {
		f.closers = append(f.closers, c.close)
		if end, ok := f.ctx.Deadline(); ok {
			c.conn.SetDeadline(end)
		}
	}
	return c, err
}

// goRedis is a client of go-redis as programs have it, with a connection for each caller. It does
// not retry.
func (f *field) goRedis(addr string, n int) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: n, MinIdleConns: n, MaxRetries: -1,
		ReadTimeout: maxRun})
	f.closers = append(f.closers, func() { rdb.Close() })
	return rdb
}

// ask sends a command whose reply is a number, or null, which counts as 0.
type ask func(args ...string) (int64, error)

// proxyLock is LOCK and UNLOCK, with the options of LOCK.
type proxyLock struct {
	ask     ask
	key     string
	options []string
	token   int64
}

func (l *proxyLock) acquire() (err error) {
	l.token, err = l.ask(append([]string{"LOCK", l.key, lockSeconds}, l.options...)...)
	if err == nil && l.token == 0 {
		err = errors.New("the reply to LOCK is null")
	}
	return err
}

func (l *proxyLock) release() error {
	n, err := l.ask("UNLOCK", l.key, strconv.FormatInt(l.token, 10))
	if err == nil && n != 1 {
		err = errors.New("UNLOCK says that the lock was not held")
	}
	return err
}

// lockBy is LOCK and UNLOCK by n clients, which connect opens.
func lockBy(name string, connect func(*field, int) ([]ask, error), options ...string) contender {
	return contender{name, true, func(f *field, n int, key keys) (list []locker, err error) {
		asks, err := connect(f, n)
		for i, a := range asks {
			list = append(list, &proxyLock{ask: a, key: key(i), options: options})
		}
		return list, err
	}}
}

// light spreads light clients over some ways.
func light(ways ...string) func(f *field, n int) ([]ask, error) {
	return func(f *field, n int) (list []ask, err error) {
		for i := range n {
			c, err := f.dial(f.ways[ways[i%len(ways)]].addr)
			if err != nil {
				return nil, err
			}
			list = append(list, c.number)
		}
		return list, nil
	}
}

// byGoRedis is one client of go-redis with n connections.
func byGoRedis(way string) func(f *field, n int) ([]ask, error) {
	return func(f *field, n int) ([]ask, error) {
		rdb := f.goRedis(f.ways[way].addr, n)
		return slices.Repeat([]ask{func(args ...string) (int64, error) {
			words := make([]any, len(args))
			for i, arg := range args {
				words[i] = arg
			}
			return rdb.Do(f.ctx, words...).Int64()
		}}, n), nil
	}
}

// byRueidis is one client of rueidis, with one connection for all callers, whose commands it sends
// together. It does not retry.
func byRueidis(way string) func(f *field, n int) ([]ask, error) {
	return func(f *field, n int) ([]ask, error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{f.ways[way].addr},
			DisableRetry: true})
		if err != nil {
			return nil, err
		}
		f.closers = append(f.closers, c.Close)
		return slices.Repeat([]ask{func(args ...string) (int64, error) {
			cmd := c.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()
			return c.Do(f.ctx, cmd).AsInt64()
		}}, n), nil
	}
}

// rueidisPatience bounds an attempt of rueidislock, which is 20 ms by default. When a busy machine
// exceeds the bound, rueidislock deletes the key that it has just taken. With NoLoopTracking that
// wakes no client, and all clients of one locker wait forever.
const rueidisPatience = 10 * time.Second

// rueidisLocks shares one locker of rueidislock, set up as its README recommends for one Redis.
func rueidisLocks(name, way string) contender {
	return contender{name, false, func(f *field, n int, key keys) (list []locker, err error) {
		shared, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{f.ways[way].addr}},
			KeyMajority:  1, NoLoopTracking: true, TryNextAfter: rueidisPatience})
		if err != nil {
			return nil, err
		}
		f.closers = append(f.closers, shared.Close)
		for i := range n {
			list = append(list, &rueidisLock{ctx: f.ctx, locker: shared, key: key(i)})
		}
		return list, nil
	}}
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

// bsmLocks is bsm/redislock, which tries again after a pause.
func bsmLocks(name, way string, pause time.Duration) contender {
	return contender{name, false, func(f *field, n int, key keys) (list []locker, err error) {
		shared := redislock.New(f.goRedis(f.ways[way].addr, n))
		for i := range n {
			list = append(list, &bsmLock{ctx: f.ctx, client: shared, key: key(i),
				retry: redislock.LinearBackoff(pause)})
		}
		return list, nil
	}}
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

// setLocks is the usual recipe by light clients: SET NX PX with a value of one's own, tried again
// after a pause, and a script that deletes the key if it still has that value.
func setLocks(name, way string, pause time.Duration) contender {
	return contender{name, false, func(f *field, n int, key keys) (list []locker, err error) {
		for i := range n {
			c, err := f.dial(f.ways[way].addr)
			if err != nil {
				return nil, err
			}
			r, err := c.do("SCRIPT", "LOAD", deleteIfMine)
			if err != nil {
				return nil, err
			}
			list = append(list, &setLock{client: c, key: key(i), value: fmt.Sprint("client:", i),
				script: r.text, pause: pause})
		}
		return list, nil
	}}
}

const deleteIfMine = `if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`

type setLock struct {
	*client
	key, value, script string
	pause              time.Duration
}

func (l *setLock) acquire() error {
	for {
		r, err := l.do("SET", l.key, l.value, "NX", "PX", lockSeconds+"000")
		if err != nil || !r.null {
			return err
		}
		time.Sleep(l.pause)
	}
}

func (l *setLock) release() error {
	n, err := l.number("EVALSHA", l.script, "1", l.key, l.value)
	if err == nil && n != 1 {
		err = errors.New("the script says that the lock was not held")
	}
	return err
}
