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

// releaseNotifications hears from other proxies that a lock is reserved for the first waiter here. A message may be lost, or not be permitted:
// the first waiter polls from time to time anyway.
//
// It listens as long as anybody waits: to one channel for all locks, or in a cluster to one for each slot in which somebody waits;
// see shards.
type releaseNotifications struct {
	locks        *Locks
	ctx          context.Context
	cancel       context.CancelFunc
	running      sync.WaitGroup
	unsubscribed atomic.Bool // it can't be told: listening has failed, and nobody listens at the moment. Written under mu

	mu         sync.Mutex
	listening  map[Identity]*shardedSubscriptions // guarded by mu; user and password only
	subscribed int                                // guarded by mu; how many of them have subscribed
	closed     bool                               // guarded by mu
	noSharded  bool                               // guarded by mu; the cluster's nodes know no sharded channels
}

// notifyChannel is the beginning of the names of the channels; unlock.lua knows it too.
const notifyChannel = "lockproxy:wake:"

// After a failure it listens again: at once if it had subscribed, otherwise after pauses that grow.
const (
	minListenRetry = 10 * time.Millisecond
	maxListenRetry = time.Second
)

// maxListening bounds the connections that listen: one is enough, but which user may subscribe isn't known before.
const maxListening = 8

func newReleaseNotifications(l *Locks) *releaseNotifications {
	w := &releaseNotifications{locks: l, listening: map[Identity]*shardedSubscriptions{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// slotTag is what unlock.lua is told of the channel on which others listen for a lock.
func (w *releaseNotifications) slotTag(key string) string {
	if !w.locks.cfg.Cluster {
		return "-"
	}
	return slotTag(slotOf([]byte(key)))
}

// listen makes sure that messages about a lock are heard, by way of a connection of a waiter's user.
func (w *releaseNotifications) listen(as Identity, key string) {
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
	sh := newShardedSubscriptions(w)
	w.listening[as] = sh
	if w.locks.cfg.Cluster {
		sh.wantLocked(slotOf([]byte(key)))
	}
	w.running.Go(func() { w.keepListening(as, sh) }) // ends with w.ctx, or when nobody waits; close waits for it
}

// keepListening hears messages until nobody waits any more, or the user may not listen: its next waiter tries again.
func (w *releaseNotifications) keepListening(as Identity, sh *shardedSubscriptions) {
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
		if w.forget(as, refused) {
			return
		}
	}
}

// forget forgets a connection that is not needed any more, or no use.
func (w *releaseNotifications) forget(as Identity, refused bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !refused && !w.closed && w.locks.Waiting() {
		return false
	}
	delete(w.listening, as)
	return true
}

// receive hears messages until the connection fails. subscribed says that it could be told until then.
func (w *releaseNotifications) receive(as Identity, sh *shardedSubscriptions) (subscribed bool, err error) {
	client := w.locks.background.client(as)
	hears := func() {
		if !subscribed {
			subscribed = true
			w.countSubscribed(1)
		}
	}
	sharded := w.locks.cfg.Cluster && !w.lacksSharded()
	if sharded {
		err = sh.receive(client, as, hears)
	}
	if sharded && redis.HasErrorPrefix(err, "unknown command") {
		w.mu.Lock()
		w.noSharded, sharded = true, false
		w.mu.Unlock()
	}
	if !sharded {
		err = w.receiveAll(client, as, hears)
	}
	if subscribed {
		w.countSubscribed(-1)
	} else {
		w.countSubscribed(0)
	}
	if w.ctx.Err() == nil {
		w.locks.log.Debug("cannot listen for releases by other proxies: waiters poll", "error", err)
	}
	return subscribed, err
}

// countSubscribed notes that one more connection has subscribed, or that one has failed.
func (w *releaseNotifications) countSubscribed(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribed += n
	w.unsubscribed.Store(w.subscribed == 0)
}

func (w *releaseNotifications) lacksSharded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noSharded
}

// receiveAll hears messages on the one channel for all locks.
func (w *releaseNotifications) receiveAll(client *redis.Client, as Identity, hears func()) error {
	sub := client.Subscribe(w.ctx, notifyChannel+w.locks.proxy)
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
			w.onMessage(as, m.Payload)
		}
	}
}

// onMessage lets the first waiter poll the lock that a message names. If nobody waits for it any more, the lock is given back.
func (w *releaseNotifications) onMessage(as Identity, payload string) {
	db, key, _ := strings.Cut(payload, ":")
	n, err := strconv.Atoi(db)
	if err != nil {
		return
	}
	as.DB = n
	id := LockID{n, key}
	w.locks.mu.Lock()
	defer w.locks.mu.Unlock()
	if q := w.locks.queues[id]; q != nil {
		q.quota = 0
		q.pollNow()
		return
	}
	w.locks.releaseReservation(as, id)
}

// releaseReservation hands on a lock that may be reserved for this proxy, though nobody waits for it here any more. If that fails, the
// reservation ends by itself.
func (l *Locks) releaseReservation(as Identity, id LockID) {
	l.timers.after(0, func(ctx context.Context) {
		l.release(l.background.on(ctx, as, id.Key, time.Now().Add(backgroundTimeout)), id, as, proof{"reserved", l.proxy}, true)
	})
}

func (w *releaseNotifications) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.running.Wait()
}
