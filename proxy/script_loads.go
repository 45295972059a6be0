package proxy

import (
	"sync"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/slot"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// scriptLoads has the upstream's scripts loaded once, however many sessions find at about the same
// time that it does not have them: after SCRIPT FLUSH, a restart or a failover. In a cluster, where
// each node has its own, each part of the slots is loaded by itself. Its zero value is ready.
type scriptLoads struct {
	mu    sync.Mutex
	parts [loadParts]*scriptLoad // guarded by mu; the last load of each
}

// scriptLoad is a load by one session, which asks for the source of a script.
type scriptLoad struct {
	done    chan struct{}        // closed when it has ended
	scripts []*script.Script     // that were sent; only its session
	ended   time.Time            // guarded by scriptLoads.mu; zero while it is under way
	waiters []passthrough.Waiter // guarded by scriptLoads.mu; told of the end
	hangs   *time.Timer          // guarded by scriptLoads.mu; ends it
}

const (
	// loadParts is how many parts the slots have. The slots of a node mostly follow one another.
	loadParts = 16
	// maxLoadWait bounds how long sessions wait for the load of another, whose connection may answer
	// nothing. Then the next that finds the scripts missing loads them.
	maxLoadWait = time.Second
	// maxLoads is for how many loads of others a session waits, one after the other, before it
	// loads by itself.
	maxLoads = 3
)

// begin says that a script was missing when it was asked for, at a time. mine says that the caller
// must load it, and then call end. Otherwise another session does or has, and w is told when that
// has ended: then the script is to be asked for again.
func (l *scriptLoads) begin(
	cluster bool, key string, missing time.Time, w passthrough.Waiter,
) (load *scriptLoad, mine bool) {
	part := 0
	if cluster {
		part = slot.Of([]byte(key)) * loadParts / slot.Count
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	load = l.parts[part]
	switch {
	case load == nil, !load.ended.IsZero() && !load.ended.After(missing):
		load = &scriptLoad{done: make(chan struct{})}
		l.parts[part] = load
		load.hangs = time.AfterFunc(maxLoadWait, func() { l.end(load, nil) })
		return load, true
	case load.ended.IsZero():
		load.waiters = append(load.waiters, w)
	}
	return load, false
}

// end ends a load, unless it has ended.
func (l *scriptLoads) end(load *scriptLoad, it *eventloop.Iteration) {
	l.mu.Lock()
	load.hangs.Stop()
	waiters := load.waiters
	load.waiters = nil
	if load.ended.IsZero() {
		load.ended = time.Now()
		close(load.done)
	}
	l.mu.Unlock()
	for _, w := range waiters {
		w.Answered(it)
	}
}
