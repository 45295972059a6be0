//go:build linux

package soak

import (
	"context"
	"time"

	"lockproxy/internal/faults/history"
)

const (
	stallTick = 20 * time.Millisecond
	// stallAfter is less than by how much one must come before another to be sure to be served before it.
	stallAfter = 300 * time.Millisecond
)

// watchStalls takes note of times at which this process, and so the machine, stood still: who sent first needn't have been read first then,
// and what was to be told came late. They are measured here, away from the service, so that no fault of its own counts as one.
func (b *Bench) watchStalls(ctx context.Context) {
	tick := time.NewTicker(stallTick)
	defer tick.Stop()
	for last := history.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := history.Now()
		if now-last >= stallAfter.Nanoseconds() {
			b.mu.Lock()
			b.faults = append(b.faults, history.Fault{Kind: "machine stalled", Target: "machine", From: last, To: now, Breaks: history.Breaks{Notices: true}})
			b.mu.Unlock()
		}
		last = history.Now()
	}
}
