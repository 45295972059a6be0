package lockcmd

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// wakes hears from other proxies that a lock is reserved for the first waiter here. A message may be lost, or not be permitted:
// the first waiter polls from time to time anyway.
//
// It listens as long as anybody waits: to one channel for all locks, or in a cluster to one for each slot in which somebody waits;
// see shards.
type wakes struct {
	locks   *Locks
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	deaf    atomic.Bool // it can't be told: listening has failed, and nobody listens at the moment. Written under mu

	mu        sync.Mutex
	listening map[Identity]*shards // guarded by mu; user and password only
	hearing   int                  // guarded by mu; how many of them have subscribed
	closed    bool                 // guarded by mu
	old       bool                 // guarded by mu; the cluster's nodes know no sharded channels
}

// wakeChannel is the beginning of the names of the channels; unlock.lua knows it too.
const wakeChannel = "lockproxy:wake:"

// After a failure it listens again: at once if it had subscribed, otherwise after pauses that grow.
const (
	minListenRetry = 10 * time.Millisecond
	maxListenRetry = time.Second
)

// maxListening bounds the connections that listen: one is enough, but which user may subscribe isn't known before.
const maxListening = 8

func newWakes(l *Locks) *wakes {
	w := &wakes{locks: l, listening: map[Identity]*shards{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// tag is what unlock.lua is told of the channel on which others listen for a lock.
func (w *wakes) tag(key string) string {
	if !w.locks.cfg.Cluster {
		return "-"
	}
	return slotTag(slotOf([]byte(key)))
}

// listen makes sure that messages about a lock are heard, by way of a connection of a waiter's user.
func (w *wakes) listen(as Identity, key string) {
	as.DB = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	if sh, ok := w.listening[as]; ok {
		if w.locks.cfg.Cluster {
			sh.wantLocked(slotOf([]byte(key)))
		}
		return
	}
	if w.closed || len(w.listening) >= maxListening {
		return
	}
	sh := newShards(w)
	w.listening[as] = sh
	if w.locks.cfg.Cluster {
		sh.wantLocked(slotOf([]byte(key)))
	}
	w.running.Go(func() { w.keepListening(as, sh) }) // ends with w.ctx, or when nobody waits; close waits for it
}

// keepListening hears messages until nobody waits any more, or the user may not listen: its next waiter tries again.
func (w *wakes) keepListening(as Identity, sh *shards) {
	for pause := minListenRetry; ; pause = min(2*pause, maxListenRetry) {
		subscribed, err := w.receive(as, sh)
		refused := redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS")
		switch {
		case refused:
			pause = maxListenRetry
		case subscribed:
			pause = minListenRetry
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
		if w.ends(as, refused) {
			return
		}
	}
}

// ends forgets a connection that is not needed any more, or no use.
func (w *wakes) ends(as Identity, refused bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !refused && !w.closed && w.locks.Waiting() {
		return false
	}
	delete(w.listening, as)
	return true
}

// receive hears messages until the connection fails. subscribed says that it could be told until then.
func (w *wakes) receive(as Identity, sh *shards) (subscribed bool, err error) {
	client := w.locks.chores.client(as)
	hears := func() {
		if !subscribed {
			subscribed = true
			w.count(1)
		}
	}
	sharded := w.locks.cfg.Cluster && !w.isOld()
	if sharded {
		err = sh.receive(client, as, hears)
	}
	if sharded && redis.HasErrorPrefix(err, "unknown command") {
		w.mu.Lock()
		w.old, sharded = true, false
		w.mu.Unlock()
	}
	if !sharded {
		err = w.receiveOne(client, as, hears)
	}
	if subscribed {
		w.count(-1)
	} else {
		w.count(0)
	}
	if w.ctx.Err() == nil {
		w.locks.log.Debug("cannot listen for releases by other proxies: waiters poll", "error", err)
	}
	return subscribed, err
}

// count notes that one more connection has subscribed, or that one has failed.
func (w *wakes) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hearing += n
	w.deaf.Store(w.hearing == 0)
}

func (w *wakes) isOld() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.old
}

// receiveOne hears messages on the one channel for all locks.
func (w *wakes) receiveOne(client *redis.Client, as Identity, hears func()) error {
	sub := client.Subscribe(w.ctx, wakeChannel+w.locks.proxy)
	defer sub.Close()
	stop := context.AfterFunc(w.ctx, func() { sub.Close() }) // a receive in progress doesn't look at its context
	defer stop()
	for {
		message, err := sub.Receive(w.ctx)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			hears()
		case *redis.Message:
			w.heard(as, m.Payload)
		}
	}
}

// heard lets the first waiter poll the lock that a message names. If nobody waits for it any more, the lock is given back.
func (w *wakes) heard(as Identity, payload string) {
	db, key, _ := strings.Cut(payload, ":")
	n, err := strconv.Atoi(db)
	if err != nil {
		return
	}
	as.DB = n
	at := lineKey{n, key}
	w.locks.mu.Lock()
	defer w.locks.mu.Unlock()
	if ln := w.locks.lines[at]; ln != nil {
		ln.turn = 0
		ln.pollNow()
		return
	}
	w.locks.giveBack(as, at)
}

// giveBack hands on a lock that may be reserved for this proxy, though nobody waits for it here any more. If that fails, the
// reservation ends by itself.
func (l *Locks) giveBack(as Identity, at lineKey) {
	l.agenda.after(0, func(ctx context.Context) {
		l.release(l.chores.on(ctx, as, at.key, time.Now().Add(choreTimeout)), at, as, proof{"reserved", l.proxy})
	})
}

func (w *wakes) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.running.Wait()
}
