package main

import (
	"time"

	"github.com/alicebob/miniredis/v2"

	"lockproxy/internal/upstream"
)

// embedded is the in-memory store that serves when no upstream is named. It is a Redis in
// miniature, on its own loopback port: good for trying out, not for use.
type embedded struct {
	store    *miniredis.Miniredis
	upstream *upstream.Upstream
	stopped  chan struct{}
	ended    chan struct{}
}

// expiryTick is how often keys expire: miniredis has no clock.
const expiryTick = 10 * time.Millisecond

func startEmbedded() (*embedded, error) {
	store, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	store.Server().SetPreHook(newAnswers(store).answer)
	redis, err := upstream.Parse("redis://" + store.Addr())
	if err != nil {
		store.Close()
		return nil, err
	}
	e := &embedded{store: store, upstream: redis, stopped: make(chan struct{}),
		ended: make(chan struct{})}
	go e.expire() // ends by stop, which waits for it
	return e, nil
}

func (e *embedded) expire() {
	defer close(e.ended)
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-e.stopped:
			return
		case now := <-tick.C:
			e.store.FastForward(now.Sub(last))
			last = now
		}
	}
}

func (e *embedded) stop() {
	close(e.stopped)
	<-e.ended
	e.store.Close()
}
