package proxy

import (
	"sync"
	"time"

	"lockproxy/internal/slot"
)

// scriptLoads has the upstream's scripts loaded once, however many sessions find at about the same
// time that it does not have them: after SCRIPT FLUSH, a restart or a failover. In a cluster, where
// each node has its own, each part of the slots is loaded by itself. Its zero value is ready.
type scriptLoads struct {
	mu    sync.Mutex
	parts [loadParts]scriptLoad // guarded by mu
}

// scriptLoad is the last load of one part.
type scriptLoad struct {
	done  chan struct{} // closed when it has ended; nil if there was none
	ended time.Time     // zero while it is under way
}

const (
	// loadParts is how many parts the slots have. The slots of a node mostly follow one another.
	loadParts = 16
	// maxLoadWait bounds how long a session waits for the load of another, whose connection may
	// answer nothing. Then it loads in its place.
	maxLoadWait = time.Second
	// maxLoads is for how many loads of others a session waits, one after the other, before it
	// loads by itself.
	maxLoads = 3
)

// begin says that a script was missing at a time, and reports whether the caller must load it, and
// then call end. Otherwise another session has, and begin has waited for it.
func (l *scriptLoads) begin(cluster bool, key string, missing time.Time) (end func(), mine bool) {
	part := 0
	if cluster {
		part = slot.Of([]byte(key)) * loadParts / slot.Count
	}
	l.mu.Lock()
	load := &l.parts[part]
	switch {
	case load.done == nil, !load.ended.IsZero() && !load.ended.After(missing):
		done := make(chan struct{})
		*load = scriptLoad{done: done}
		l.mu.Unlock()
		return func() { l.end(load, done) }, true
	}
	done := load.done
	l.mu.Unlock()
	select {
	case <-done:
		return nil, false
	case <-time.After(maxLoadWait):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if load.done != done {
		return nil, false // a third has taken over
	}
	next := make(chan struct{}) // later sessions need not wait for the load that hangs
	*load = scriptLoad{done: next}
	return func() { l.end(load, next) }, true
}

func (l *scriptLoads) end(load *scriptLoad, done chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if load.done == done {
		load.ended = time.Now()
	}
	close(done)
}
