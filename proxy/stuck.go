package proxy

import (
	"context"
	"time"

	"lockproxy/internal/loopguard"
)

// A session whose requests stand behind one that blocks reads nothing more from its client, so it
// does not see the client close. Redis by itself would read on and see that. Such a session must
// not stay until what it waits for happens: what a BLPOP then takes would be lost.

const (
	// stuckTimeout is how long a client that has closed its side may neither be read nor be given
	// anything. It may have closed only that side.
	stuckTimeout = 30 * time.Second
	// stuckEvery is how often that is checked.
	stuckEvery = 5 * time.Second
)

// stuck is since when a client has read and sent nothing, and the bytes until then.
type stuck struct {
	bytes uint64
	since time.Time
}

// endStuck ends the sessions of clients that have closed and are no longer read, until ctx ends.
func (r *roster) endStuck(ctx context.Context) {
	loopguard.MayWait()
	tick := time.NewTicker(stuckEvery)
	defer tick.Stop()
	closed := map[*session]stuck{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			closed = r.findStuck(closed, now)
		}
	}
}

// findStuck ends the sessions that have been stuck for too long. before is what it returned last:
// those whose clients have closed.
func (r *roster) findStuck(before map[*session]stuck, now time.Time) map[*session]stuck {
	closed := map[*session]stuck{}
	for _, sess := range r.list() {
		if !hungUp(sess.client.control) {
			continue
		}
		is := stuck{sess.client.in.Load() + sess.client.out.Load(), now}
		if was, ok := before[sess]; ok && was.bytes == is.bytes {
			is.since = was.since
		}
		if now.Sub(is.since) >= stuckTimeout {
			sess.kill()
		}
		closed[sess] = is
	}
	return closed
}
