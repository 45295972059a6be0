//go:build linux

package soak

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/faults/process"
)

// kind is a kind of fault: its target (which has at most one fault at a time), what it breaks, and
// how to do it. do returns when the fault is over.
type kind struct {
	on     string
	breaks history.Breaks
	do     func(b *Bench, ctx context.Context, f *Fault)
}

const (
	onRedis  = "redis"
	onProxy  = "proxy"
	onUp     = "upstream link"
	onDown   = "client link"
	onClient = "client"
	onSpare  = "spare"

	onMachine = "machine"
	onReplica = "replica"
)

// kinds is every fault there is. docs/guarantees.md has a line for each.
var kinds = map[string]kind{
	"proxy killed": {onProxy, history.Breaks{Notices: true, Service: true, Orphans: true},
		(*Bench).killProxy},
	"proxy paused": {onProxy, history.Breaks{Notices: true, Service: true, Orphans: true},
		(*Bench).pauseProxy},
	"proxy replaced": {onProxy, history.Breaks{Notices: true, Service: true, Orphans: true},
		(*Bench).replaceProxy},

	// and loses what its persistence loses
	"power cut":      {onRedis, history.Breaks{Service: true, Orphans: true}, (*Bench).cutPower},
	"redis paused":   {onRedis, history.Breaks{Service: true, Orphans: true}, (*Bench).pauseRedis},
	"clients killed": {onRedis, history.Breaks{Service: true}, (*Bench).killClients},
	"wakes lost":     {onRedis, history.Breaks{Searches: true, Listing: true}, (*Bench).loseWakes},
	"clients paused": {onRedis, history.Breaks{Service: true, Orphans: true},
		(*Bench).pauseClients},
	"scripts flushed": {onRedis, history.Breaks{Listing: true}, (*Bench).flushScripts},
	"data flushed":    {onRedis, history.Breaks{Leases: true, Writes: true}, (*Bench).flushData},
	"memory full":     {onRedis, history.Breaks{Service: true}, (*Bench).fillMemory},
	"busy script":     {onRedis, history.Breaks{Service: true}, (*Bench).runBusyScript},
	"rights taken": {onRedis, history.Breaks{Service: true, Orphans: true},
		(*Bench).revokeRights},
	"user removed": {onRedis, history.Breaks{Users: true}, (*Bench).removeUser},
	// until all proxies have the same
	passwordRotates: {onRedis, history.Breaks{Searches: true}, (*Bench).rotatePasswords},
	"clock forward": {onRedis, history.Breaks{Leases: true}, (*Bench).clockForward},
	"clock back":    {onRedis, history.Breaks{Service: true, Orphans: true}, (*Bench).clockBack},

	replicaLags: {onReplica, history.Breaks{Service: true}, (*Bench).lagReplica},

	"upstream link cut": {onUp, history.Breaks{Service: true, Orphans: true}, (*Bench).cutUp},
	"upstream link one-way": {onUp, history.Breaks{Service: true, Orphans: true},
		(*Bench).oneWayUp},
	"upstream link slow": {onUp, history.Breaks{Service: true, Orphans: true}, (*Bench).slowUp},
	"client link closed": {onDown, history.Breaks{Notices: true}, (*Bench).closeDown},
	"client link reset": {onDown, history.Breaks{Notices: true, Leases: true},
		(*Bench).resetDown},
	"client link one-way": {onDown, history.Breaks{Notices: true}, (*Bench).oneWayDown},
	"client link slow":    {onDown, history.Breaks{Notices: true}, (*Bench).slowDown},
	"links corrupted":     {onSpare, history.Breaks{}, (*Bench).corruptLinks},

	"client killed": {onClient, history.Breaks{}, (*Bench).killClient},
	"client paused": {onClient, history.Breaks{Notices: true}, (*Bench).pauseClient},

	machineVanished: {onMachine, history.Breaks{Notices: true, Vanishes: true}, (*Bench).vanish},
}

const (
	machineVanished = "machine vanished"
	passwordRotates = "password rotates"
	replicaLags     = "replica lags"
)

// concerns names the proxies and clients that a fault affects, or whose links; nil is all.
func (f Fault) concerns() (toProxies, toClients []int) {
	switch kinds[f.Kind].on {
	case onProxy, onUp, onDown:
		return []int{f.Target}, nil
	case onClient:
		return nil, []int{farClients + f.client()}
	case onMachine:
		return nil, []int{distantClients, distantClients + 1}
	}
	if kinds[f.Kind].breaks.Users {
		for i := range mostAskers {
			toClients = append(toClients, askerClients+i)
		}
	}
	return nil, toClients
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (b *Bench) killProxy(ctx context.Context, f *Fault) {
	b.starting[f.Target].Lock()
	defer b.starting[f.Target].Unlock()
	p := b.proxy[f.Target]
	p.Kill()
	sleep(ctx, f.For)
	b.startProxy(p)
}

func (b *Bench) startProxy(p *process.Proxy) {
	if err := p.Start(context.Background()); err != nil {
		b.alarm("a proxy can't be started again: %v", err)
	}
}

func (b *Bench) pauseProxy(ctx context.Context, f *Fault) {
	b.proxy[f.Target].Pause()
	sleep(ctx, f.For)
	b.proxy[f.Target].Resume()
}

func (b *Bench) replaceProxy(ctx context.Context, f *Fault) {
	b.starting[f.Target].Lock()
	defer b.starting[f.Target].Unlock()
	p := b.proxy[f.Target]
	if !p.Stop(patience) {
		b.alarm("proxy %d did not end within %v of SIGTERM:\n%s", f.Target, patience, p.Log())
	}
	sleep(ctx, f.For/4)
	b.startProxy(p)
}

func (b *Bench) cutPower(ctx context.Context, f *Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.Detail = "appendfsync " + string(b.persist)
	if b.persist != process.Always {
		f.breaks.Leases, f.breaks.Writes = true, true
		b.loseDataLocked(f)
	}
	err := b.redis.PowerCut(patience)
	if err == nil {
		sleep(ctx, f.For)
		err = b.redis.Start(context.Background(), b.persist)
	}
	if err == nil {
		err = b.awaitReplica(context.Background())
	}
	if err != nil {
		b.alarms = append(b.alarms, fmt.Sprintf("redis can't be started again: %v", err))
	}
}

// loseDataLocked records that redis loses data: if its clock
// is behind its highest value, tokens can go back.
func (b *Bench) loseDataLocked(f *Fault) {
	b.lostData = true
	if time.Now().Add(b.offset).Before(b.highWater) {
		f.breaks.Tokens = true
	}
}

func (b *Bench) pauseRedis(ctx context.Context, f *Fault) {
	b.redis.Pause()
	sleep(ctx, f.For)
	b.redis.Resume()
}

func (b *Bench) killClients(ctx context.Context, f *Fault) {
	for range 1 + f.Amount%3 {
		b.must(f, "CLIENT", "KILL", "TYPE", "normal")
		sleep(ctx, f.For/3)
	}
}

func (b *Bench) loseWakes(ctx context.Context, f *Fault) {
	for end := time.Now().Add(f.For); time.Now().Before(end) && ctx.Err() == nil; {
		b.must(f, "CLIENT", "KILL", "TYPE", "pubsub")
		sleep(ctx, 15*time.Millisecond)
	}
}

func (b *Bench) pauseClients(ctx context.Context, f *Fault) {
	mode := []string{"ALL", "WRITE"}[f.Amount%2]
	f.Detail = mode
	b.must(f, "CLIENT", "PAUSE", fmt.Sprint(f.For.Milliseconds()), mode)
	sleep(ctx, f.For)
}

func (b *Bench) flushScripts(ctx context.Context, f *Fault) {
	for end := time.Now().Add(f.For); time.Now().Before(end) && ctx.Err() == nil; {
		b.must(f, "SCRIPT", "FLUSH", []string{"SYNC", "ASYNC"}[f.Amount%2])
		sleep(ctx, 20*time.Millisecond)
	}
}

func (b *Bench) flushData(ctx context.Context, f *Fault) {
	b.mu.Lock()
	b.loseDataLocked(f)
	b.mu.Unlock()
	b.must(f, "FLUSHALL")
}

func (b *Bench) fillMemory(ctx context.Context, f *Fault) {
	b.must(f, "CONFIG", "SET", "maxmemory", "1")
	sleep(ctx, f.For)
	b.must(f, "CONFIG", "SET", "maxmemory", "0")
}

// runBusyScript keeps redis busy with a script that SCRIPT KILL ends, or with one that has written
// and must end by itself.
func (b *Bench) runBusyScript(ctx context.Context, f *Fault) {
	if f.Amount%2 == 0 {
		f.Detail = "ended by SCRIPT KILL"
		done := make(chan struct{})
		go func() { // ends with the script
			defer close(done)
			b.command(patience, "EVAL", "while true do end", "0")
		}()
		sleep(ctx, f.For)
		for { // it may not have begun
			b.must(f, "SCRIPT", "KILL")
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	f.Detail = "that has written"
	// It counts iterations, for an unknown time: within a script Redis's time stops.
	b.command(patience, "EVAL",
		"redis.call('SET', 'busy', 1) for i = 1, ARGV[1] do local x = i % 7 end", "0",
		fmt.Sprint(f.For.Milliseconds()*30000))
}

func (b *Bench) revokeRights(ctx context.Context, f *Fault) {
	b.must(f, "ACL", "SETUSER", ofProxies, "-eval", "-evalsha")
	sleep(ctx, f.For)
	b.must(f, "ACL", "SETUSER", ofProxies, "+@all")
}

func (b *Bench) removeUser(ctx context.Context, f *Fault) {
	user := users[1+f.Amount%(len(users)-1)]
	f.Detail = user
	b.must(f, "ACL", "DELUSER", user)
	sleep(ctx, f.For)
	b.must(f, "ACL", "SETUSER", user, "on", ">"+user, "~*", "&*", "+@all")
}

func (b *Bench) clockForward(ctx context.Context, f *Fault) {
	b.step(f, time.Duration(1+f.Amount%20)*time.Second)
}

func (b *Bench) clockBack(ctx context.Context, f *Fault) {
	by := time.Duration(1+f.Amount%3) * time.Second
	b.step(f, -by)
	f.longer, f.lasts = by, by+3*time.Second
}

func (b *Bench) step(f *Fault, by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.Detail = by.String()
	f.breaks.Tokens = by < 0 && b.lostData
	if now := time.Now().Add(b.offset); now.After(b.highWater) {
		b.highWater = now
	}
	b.offset += by
	if err := b.redis.SetClock(b.offset); err != nil {
		b.alarms = append(b.alarms, err.Error())
	}
}

// client is which of the client processes a fault affects.
func (f Fault) client() int { return f.Target % len(Bench{}.locker) }

// vanish takes a machine's link away, for a while or for the rest of the round.
func (b *Bench) vanish(ctx context.Context, f *Fault) {
	if b.gone {
		f.Detail = "it was gone already"
		return
	}
	if err := b.machine.Link(false); err != nil {
		b.alarm("%v", err)
	}
	if f.Amount%2 == 1 {
		f.Detail, f.lasts, b.gone = "for good", time.Hour, true
		return
	}
	sleep(ctx, f.For)
	if err := b.machine.Link(true); err != nil {
		b.alarm("%v", err)
	}
}

func (b *Bench) killClient(ctx context.Context, f *Fault) {
	b.locker[f.client()].kill()
	sleep(ctx, f.For/4)
	b.locker[f.client()].startAgain()
}

func (b *Bench) pauseClient(ctx context.Context, f *Fault) {
	p := &b.locker[f.client()]
	p.pause()
	sleep(ctx, f.For)
	p.resume()
}

// must runs a command that has to work; redis can be slow to answer.
func (b *Bench) must(f *Fault, args ...string) {
	if _, err := b.command(patience, args...); err != nil &&
		!strings.Contains(err.Error(), "NOTBUSY") {
		b.alarm("%s: %s failed: %v", f.Kind, strings.Join(args, " "), err)
	}
}
