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
	longStall  = time.Second
)

// watchStalls takes note of times at which this process, and so the machine, stood still: who sent first needn't have been read first then,
// and after long ones what was to be told came late. They are measured here, away from the service, so that no fault of its own counts as one.
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
		if took := time.Duration(now - last); took >= stallAfter {
			f := history.Fault{Kind: "machine stalled", Target: "machine", From: last, To: now, Breaks: history.Breaks{Arrival: true, Notices: took >= longStall}}
			b.mu.Lock()
			b.faults = append(b.faults, f)
			b.mu.Unlock()
		}
		last = now
	}
}
