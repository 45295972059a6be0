//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/faults/process"
)

// Programs are the paths of what a Bench runs, built with the race detector.
type Programs struct {
	Proxy string // lockproxy
	Tools string // locktools, for client processes
}

// BuildPrograms compiles them into dir.
func BuildPrograms(ctx context.Context, dir string) (p Programs, err error) {
	if p.Proxy, err = process.Build(ctx, dir, "lockproxy"); err == nil {
		p.Tools, err = process.Build(ctx, dir, "locktools")
	}
	return p, err
}

// proxies is how many proxies clients use.
const proxies = 3

// spare is the proxy whose links are corrupted; only noise uses it.
const spare = proxies

// patience is how long the bench waits for what must come, however slow the machine is.
const patience = 3 * time.Minute

// Bench is a lock service with faults. Close it.
type Bench struct {
	dir      string
	programs Programs
	redis    *process.Redis
	replica  *process.Redis // nil if this round has none
	way      *badlink.Link  // from it to redis
	proxy    [proxies + 1]*process.Proxy
	up       [proxies + 1]*badlink.Link // from each proxy to Redis
	down     [proxies + 1]*badlink.Link // from clients to each proxy; the spare's is before proxy 0
	locker   [2]clientProcess
	machine  *process.Machine           // nil if there is none
	distant  [2]clientProcess           // on machine
	distance [proxies + 1]time.Duration // of each proxy from redis, there and back, in this round
	gone     bool                       // machine stays away for the rest of the round

	watching sync.WaitGroup
	stop     context.CancelFunc

	mu        sync.Mutex          // held while redis is started, ended or inspected
	offset    time.Duration       // guarded by mu; of redis's clock
	highWater time.Time           // guarded by mu; an upper bound of redis's clock at its last step
	lostData  bool                // guarded by mu; redis has lost data in this round
	faults    []history.Fault     // guarded by mu; of this round
	alarms    []string            // guarded by mu
	seen      string              // guarded by mu; alarms of processes that were reported already
	doing     atomic.Value        // of string: the fault under way, for people
	persist   process.Persistence // guarded by mu

	confirmed [proxies + 1]bool // of each proxy: a replica must confirm its locks
	starting  [proxies + 1]sync.Mutex
	passwords [2]*client.Passwords
	rotated   int               // the number of the passwords in use
	notes     *history.Recorder // of this round
}

// users can run every command until an ACL fault. Their passwords are their names.
var users = []string{"", "walter", "wanda"}

// Two users have passwords that change: ofProxies, the login of the proxies themselves, and rotates,
// a login of clients. A password is the user's name and a number.
const (
	admin     = "bench"
	ofProxies = "proxies"
	rotates   = "rita"
)

const everything = "~* &* +@all"

// NewBench starts a service in a directory within dir. machine says that there must be a machine
// that can vanish, which needs root.
func NewBench(ctx context.Context, dir string, programs Programs, seed uint64,
	machine bool) (b *Bench, err error) {
	b = &Bench{programs: programs}
	begun := b
	defer func() {
		if err != nil {
			begun.Close()
		}
	}()
	if b.dir, err = os.MkdirTemp(dir, "bench"); err != nil {
		return nil, err
	}
	host := "127.0.0.1"
	if machine {
		if b.machine, err = process.NewMachine(); err != nil {
			return nil, err
		}
		host = b.machine.Host
	}
	if err = b.makeUsers(); err != nil {
		return nil, err
	}
	if b.redis, err = process.StartRedis(ctx, b.dir, process.None, true, "--aclfile",
		b.acl()); err != nil {
		return nil, err
	}
	if b.way, err = badlink.New(b.redis.Addr, seed+50); err != nil {
		return nil, err
	}
	b.persist = process.None
	for i := range b.proxy {
		if b.up[i], err = badlink.New(b.redis.Addr, seed+uint64(i)); err != nil {
			return nil, err
		}
		if err = b.writeSecret(i); err != nil {
			return nil, err
		}
		if b.proxy[i], err = process.StartProxyOn(ctx, host, programs.Proxy, "--upstream-file",
			b.secret(i), "--shutdown-timeout", "1s"); err != nil {
			return nil, err
		}
		to := b.proxy[i].Addr
		if i == spare {
			to = b.proxy[0].Addr
		}
		if b.down[i], err = badlink.New(to, seed+100+uint64(i)); err != nil {
			return nil, err
		}
	}
	watch, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.watching.Go(func() { b.watch(watch) })
	b.watching.Go(func() { b.watchStalls(watch) })
	return b, nil
}

// Close ends all processes and removes their files.
func (b *Bench) Close() {
	if b.stop != nil {
		b.stop()
		b.watching.Wait()
	}
	for _, p := range b.processesOfClients() {
		p.kill()
	}
	if b.machine != nil {
		b.machine.Close()
	}
	for i := range b.proxy {
		if b.proxy[i] != nil {
			b.proxy[i].Kill()
		}
		for _, r := range []*badlink.Link{b.down[i], b.up[i]} {
			if r != nil {
				r.Close()
			}
		}
	}
	b.endReplica()
	if b.way != nil {
		b.way.Close()
	}
	if b.redis != nil {
		b.redis.Kill()
	}
	os.RemoveAll(b.dir)
}

// watch records what a power cut needs to know.
func (b *Bench) watch(ctx context.Context) {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		b.mu.Lock()
		b.redis.Watch()
		b.mu.Unlock()
	}
}

// processesOfClients are the clients in separate processes.
func (b *Bench) processesOfClients() (list []*clientProcess) {
	for i := range b.locker {
		list = append(list, &b.locker[i])
	}
	for i := range b.distant {
		list = append(list, &b.distant[i])
	}
	return list
}

// fresh begins a round: an empty redis of the right persistence,
// with the right time, and proxies that reach it.
func (b *Bench) fresh(ctx context.Context, p Plan) error {
	persistence := p.Persistence
	b.endReplica()
	if b.machine != nil {
		if err := b.machine.Link(true); err != nil {
			return err
		}
		b.gone = false
	}
	b.mu.Lock()
	b.redis.Kill()
	err := errors.Join(os.RemoveAll(filepath.Join(b.redis.Dir(), "appendonlydir")),
		b.redis.SetClock(0))
	b.offset, b.highWater, b.lostData, b.faults, b.persist = 0, time.Now(), false, nil, persistence
	if err == nil {
		err = b.redis.Start(ctx, persistence)
	}
	b.mu.Unlock()
	if err == nil && p.NeedsReplica() {
		err = b.startReplica(ctx)
	}
	if err != nil {
		return err
	}
	for i := range b.proxy {
		away := p.Away
		if i == 0 {
			away = max(away, p.Far)
		}
		b.distance[i] = away
		b.up[i].Away(away / 2)
		b.up[i].Set(badlink.State{})
		b.down[i].Set(badlink.State{})
		if !b.proxy[i].Alive() {
			return fmt.Errorf("proxy %d has ended:\n%s", i, b.proxy[i].Log())
		}
		if err := b.confirm(ctx, i, p.NeedsReplica()); err != nil {
			return err
		}
		if err := b.awaitService(ctx, b.proxy[i].Addr); err != nil {
			return err
		}
	}
	return nil
}

// awaitService returns when a proxy's clients reach redis.
func (b *Bench) awaitService(ctx context.Context, addr string) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := client.Dial(addr)
		if err == nil {
			var r client.Reply
			r, err = c.Do(patience, "PING")
			c.Close()
			if err == nil && !r.IsError() {
				return nil
			}
			if err == nil {
				err = errors.New(r.Text)
			}
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("the proxy at %s does not reach redis: %w", addr, err)
		}
	}
}

// command asks redis something as the bench, for as long as it takes.
func (b *Bench) command(timeout time.Duration, args ...string) (client.Reply, error) {
	c, err := b.dial()
	if err != nil {
		return client.Reply{}, err
	}
	defer c.Close()
	r, err := c.Do(timeout, args...)
	if err == nil && r.IsError() {
		err = errors.New(r.Text)
	}
	return r, err
}

// dial connects to redis as the bench.
func (b *Bench) dial() (*client.Conn, error) {
	c, err := client.Dial(b.redis.Addr)
	if err != nil {
		return nil, err
	}
	if _, err := c.Do(patience, "AUTH", admin, admin); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// straight are the targets without relays, linked those with them.
func (b *Bench) straight() (targets []client.Target) {
	for i := range proxies {
		targets = append(targets, client.Target{Proxy: i, Addr: b.proxy[i].Addr})
	}
	return targets
}

func (b *Bench) linked() (targets []client.Target) {
	for i := range proxies {
		targets = append(targets, client.Target{Proxy: i, Addr: b.down[i].Addr()})
	}
	return targets
}

// alarm records a fault of a process.
func (b *Bench) alarm(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarms = append(b.alarms, fmt.Sprintf(format, args...))
}
