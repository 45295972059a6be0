package lockcmd

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// wakes hears from other proxies that a lock is reserved for the first waiter here. A message may be lost, or not be permitted:
// the first waiter looks from time to time anyway.
//
// It listens to one channel for all locks, or in a cluster to one for each slot in which somebody waits: see shards.
type wakes struct {
	locks   *Locks
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	listening map[Identity]*shards // guarded by mu; user and password only
	closed    bool                 // guarded by mu
	old       bool                 // guarded by mu; the cluster's nodes know no sharded channels
}

// wakeChannel is the beginning of the names of the channels; unlock.lua knows it too.
const wakeChannel = "lockproxy:wake:"

// listenRetry is how long after a failure the next waiter makes it listen again.
const listenRetry = time.Second

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
	w.running.Add(1)
	go func() { // ends with w.ctx; close waits for it
		defer w.running.Done()
		w.receive(as, sh)
		select {
		case <-w.ctx.Done():
		case <-time.After(listenRetry):
		}
		w.mu.Lock()
		delete(w.listening, as)
		w.mu.Unlock()
	}()
}

// receive hears messages until the connection fails.
func (w *wakes) receive(as Identity, sh *shards) {
	client := w.locks.chores.client(as)
	err := error(nil)
	sharded := w.locks.cfg.Cluster && !w.isOld()
	if sharded {
		err = sh.receive(client)
	}
	if sharded && redis.HasErrorPrefix(err, "unknown command") {
		w.mu.Lock()
		w.old, sharded = true, false
		w.mu.Unlock()
	}
	if !sharded {
		err = w.receiveOne(client)
	}
	if w.ctx.Err() == nil {
		w.locks.log.Debug("cannot listen for releases by other proxies: waiters look by themselves", "error", err)
	}
}

func (w *wakes) isOld() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.old
}

// receiveOne hears messages on the one channel for all locks.
func (w *wakes) receiveOne(client *redis.Client) error {
	sub := client.Subscribe(w.ctx, wakeChannel+w.locks.proxy)
	defer sub.Close()
	stop := context.AfterFunc(w.ctx, func() { sub.Close() }) // a receive in progress doesn't heed its context
	defer stop()
	for {
		m, err := sub.ReceiveMessage(w.ctx)
		if err != nil {
			return err
		}
		w.heard(m.Payload)
	}
}

// heard lets the first waiter look at the lock that a message names.
func (w *wakes) heard(payload string) {
	db, key, _ := strings.Cut(payload, ":")
	n, err := strconv.Atoi(db)
	if err != nil {
		return
	}
	w.locks.mu.Lock()
	defer w.locks.mu.Unlock()
	if ln := w.locks.lines[lineKey{n, key}]; ln != nil {
		ln.turn = 0
		ln.lookNow()
	}
}

func (w *wakes) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.running.Wait()
}
