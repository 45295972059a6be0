package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// contender is a way to lock. open connects n clients; key names the lock of each. close ends what
// open has begun, also after it has failed.
type contender struct {
	name string
	open func(f *field, n int, key func(i int) string) ([]locker, error)
}

// field is where the clients of a run are, and what must be closed after it.
type field struct {
	*bench
	ctx     context.Context // of the run
	closers []func()
}

// field begins a run whose clients can wait no longer than patience.
func (b *bench) field(patience time.Duration) *field {
	ctx, cancel := context.WithTimeoutCause(b.ctx, patience, errStalled)
	return &field{bench: b, ctx: ctx, closers: []func(){cancel}}
}

func (f *field) close() {
	for _, c := range f.closers {
		c()
	}
}

// run lets n clients lock as d says, who wait no longer than patience: for one lock, or for a lock
// each.
func (c contender) run(b *bench, n int, patience time.Duration, d drive) (o *outcome, err error) {
	f := b.field(patience)
	defer f.close()
	d.ctx = f.ctx
	d.lockers, err = c.open(f, n, func(i int) string {
		if d.oneLock {
			return "job"
		}
		return fmt.Sprintf("job:%d", i)
	})
	if err != nil {
		return nil, err
	}
	return d.run(b)
}

// raws opens a light client per locker.
func (f *field) raws(n int, addr func(i int) string,
	with func(i int, c *rawClient) locker) ([]locker, error) {
	lockers := make([]locker, n)
	for i := range lockers {
		c, err := dial(addr(i))
		if err != nil {
			return nil, err
		}
		f.closers = append(f.closers, c.close)
		lockers[i] = with(i, c)
	}
	return lockers, nil
}

func (f *field) direct(int) string { return f.redis }

// through spreads the clients over the first count proxies.
func (f *field) through(count int) func(i int) string {
	return func(i int) string { return f.proxies[i%count] }
}

// goRedis is a client of go-redis as a program would have it, with as many connections as callers.
// Nothing is sent twice.
func (f *field) goRedis(addr string, n int) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: n, MinIdleConns: n, MaxRetries: -1,
		ReadTimeout: maxReply})
	f.closers = append(f.closers, func() { rdb.Close() })
	return rdb
}

// proxyLocks are n lockers by LOCK. client is that of locker i and asks for it.
func proxyLocks(n int, wait bool, key func(int) string,
	client func(i int) func(args ...string) (int64, error)) []locker {
	lockers := make([]locker, n)
	for i := range lockers {
		lockers[i] = &proxyLock{ask: client(i), key: key(i), wait: wait}
	}
	return lockers
}

func lockRaw(name string, proxies int, wait bool) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		return f.raws(n, f.through(proxies), func(i int, c *rawClient) locker {
			return &proxyLock{rawClient: c, ask: c.number, key: key(i), wait: wait}
		})
	}}
}

func lockGoRedis(name string, proxies int, wait bool) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		clients := make([]*redis.Client, proxies)
		for i := range clients {
			clients[i] = f.goRedis(f.proxies[i], n/proxies)
		}
		return proxyLocks(n, wait, key, func(i int) func(args ...string) (int64, error) {
			return func(args ...string) (int64, error) {
				words := over(args, func(arg string) any { return arg })
				return clients[i%proxies].Do(f.ctx, words...).Int64()
			}
		}), nil
	}}
}

// lockRueidis is LOCK and UNLOCK by one client of rueidis for all, which sends what its callers ask
// at the same time together, as it does any command. Nothing is sent twice.
func lockRueidis(name string) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{f.proxies[0]},
			DisableRetry: true})
		if err != nil {
			return nil, err
		}
		f.closers = append(f.closers, client.Close)
		return proxyLocks(n, false, key, func(int) func(args ...string) (int64, error) {
			return func(args ...string) (int64, error) {
				cmd := client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()
				return client.Do(f.ctx, cmd).AsInt64()
			}
		}), nil
	}}
}

// rueidisPatience is how long a try of rueidislock can take. There is no next key to go on to after
// the 20 ms that it allows by default, and when a busy machine exceeds them it deletes what it has
// just taken, which with NoLoopTracking wakes nobody: then all clients of one locker wait forever.
const rueidisPatience = 10 * time.Second

func rueidisDirect(name string, clientsPerLocker int) contender {
	return rueidisAt(name, clientsPerLocker, func(f *field) string { return f.redis })
}

// rueidisAt shares lockers of rueidislock, set up as its README recommends for one Redis, among the
// clients.
func rueidisAt(name string, clientsPerLocker int, at func(*field) string) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		lockers := make([]locker, n)
		var shared rueidislock.Locker
		for i := range lockers {
			if i%clientsPerLocker == 0 {
				l, err := rueidislock.NewLocker(rueidislock.LockerOption{
					ClientOption:   rueidis.ClientOption{InitAddress: []string{at(f)}},
					KeyMajority:    1,
					NoLoopTracking: true,
					TryNextAfter:   rueidisPatience,
				})
				if err != nil {
					return nil, err
				}
				f.closers = append(f.closers, l.Close)
				shared = l
			}
			lockers[i] = &rueidisLock{ctx: f.ctx, locker: shared, key: key(i)}
		}
		return lockers, nil
	}}
}

func bsmDirect(name string, pause time.Duration) contender {
	return bsmAt(name, pause, func(f *field) string { return f.redis })
}

func bsmBehind(name string, pause time.Duration) contender {
	return bsmAt(name, pause, behindHAProxy)
}

// behindHAProxy is the first of the ways that the part needs.
func behindHAProxy(f *field) string { return f.targets[0].server.addr }

func bsmAt(name string, pause time.Duration, at func(*field) string) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		client := redislock.New(f.goRedis(at(f), n))
		lockers := make([]locker, n)
		for i := range lockers {
			lockers[i] = &bsmLock{ctx: f.ctx, client: client, key: key(i),
				retry: redislock.LinearBackoff(pause)}
		}
		return lockers, nil
	}}
}

func setnxDirect(name string, pause time.Duration) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		return f.raws(n, f.direct, func(i int,
			c *rawClient) locker {
			return &setnxLock{rawClient: c, key: key(i), pause: pause}
		})
	}}
}

func evalDirect(name string, pause time.Duration) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		return f.raws(n, f.direct, func(i int, c *rawClient) locker {
			return &evalLock{rawClient: c,
				key: key(i), pause: pause}
		})
	}}
}

// contest is contenders that do the same, by so many clients.
type contest struct {
	contenders []contender
	clients    int
	results    runs[outcome]
}

func newContest(clients int, contenders ...contender) contest {
	return contest{contenders, clients, make(runs[outcome], len(contenders))}
}

func (c contest) cases() []string {
	return over(c.contenders, func(c contender) string { return c.name })
}

// lock runs a contender. A run that fails ends the report.
func (c contest) lock(b *bench, i int, patience time.Duration, d drive) error {
	o, err := c.contenders[i].run(b, c.clients, patience, d)
	if err == nil {
		c.results[i] = append(c.results[i], o)
	}
	return err
}
