package lockcmd

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// wakes hears from other proxies that a lock is reserved for the first waiter here. A message may be lost, or not be permitted:
// the first waiter looks from time to time anyway.
type wakes struct {
	locks   *Locks
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	listening map[Identity]struct{} // guarded by mu; user and password only
	closed    bool
}

// wakeChannel is the beginning of the names of the channels; unlock.lua knows it too.
const wakeChannel = "lockproxy:wake:"

// listenRetry is how long after a failure the next waiter makes it listen again.
const listenRetry = time.Second

// maxListening bounds the connections that listen: one is enough, but which user may subscribe isn't known before.
const maxListening = 8

func newWakes(l *Locks) *wakes {
	w := &wakes{locks: l, listening: map[Identity]struct{}{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// listen makes sure that messages are heard, by way of a connection of a waiter's user.
func (w *wakes) listen(as Identity) {
	as.DB = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.listening[as]; ok || w.closed || len(w.listening) >= maxListening {
		return
	}
	w.listening[as] = struct{}{}
	w.running.Add(1)
	go func() { // ends with w.ctx; close waits for it
		defer w.running.Done()
		w.receive(as)
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
func (w *wakes) receive(as Identity) {
	sub := w.locks.chores.client(as).Subscribe(w.ctx, wakeChannel+w.locks.proxy)
	defer sub.Close()
	stop := context.AfterFunc(w.ctx, func() { sub.Close() }) // a receive in progress doesn't heed its context
	defer stop()
	for {
		m, err := sub.ReceiveMessage(w.ctx)
		if err != nil {
			if w.ctx.Err() == nil {
				w.locks.log.Debug("cannot listen for releases by other proxies: waiters look by themselves", "error", err)
			}
			return
		}
		db, key, _ := strings.Cut(m.Payload, ":")
		n, err := strconv.Atoi(db)
		if err != nil {
			continue
		}
		w.locks.mu.Lock()
		if ln := w.locks.lines[lineKey{n, key}]; ln != nil {
			ln.turn = 0
			ln.lookNow()
		}
		w.locks.mu.Unlock()
	}
}

func (w *wakes) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.running.Wait()
}
