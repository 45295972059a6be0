package proxy

import "time"

// A session whose requests stand behind one that blocks reads nothing more from its client, so it
// does not see the client close. Redis by itself would read on and see that. Such a session must
// not stay until what it waits for happens: what a BLPOP then takes would be lost.

// stuckTimeout is how long a client that has closed its side may neither be read nor be given
// anything. It may have closed only that side.
const stuckTimeout = 30 * time.Second

// stuck is since when a client has read and sent nothing, and the bytes until then.
type stuck struct {
	bytes uint64
	since time.Time
}

// endStuck returns what ends the sessions of clients that have closed and are no longer read.
func endStuck() (look func(sessions []*session, now time.Time)) {
	before := map[*session]stuck{} // those whose clients have closed
	return func(sessions []*session, now time.Time) {
		closed := map[*session]stuck{}
		for _, sess := range sessions {
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
		before = closed
	}
}
