//go:build linux

package soak

import (
	"context"
	"time"

	"lockproxy/internal/test/faults/history"
)

const (
	stallTick = 20 * time.Millisecond
	// less than Bounds.Arrival, the distance at which order of arrival is judged
	stallAfter = 300 * time.Millisecond
	longStall  = time.Second
)

// watchStalls records the times at which this process, and so the machine,
// hung: requests sent before the end of a stall can be read in another
// order, and after a long one messages come late. It measures them here, apart
// from the service, so that no fault of the service counts as one.
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
		if lasted := time.Duration(now - last); lasted >= stallAfter {
			f := history.Fault{Kind: "machine stalled", Target: "machine", From: last, To: now,
				Breaks: history.Breaks{Arrival: true, Notices: lasted >= longStall}}
			b.mu.Lock()
			b.faults = append(b.faults, f)
			b.mu.Unlock()
		}
		last = now
	}
}
