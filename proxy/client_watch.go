package proxy

import (
	"slices"
	"time"

	"lockproxy/internal/loopguard"
)

// clientWatch reads from a client while its session waits for something else, so that a client that
// closes is noticed.
type clientWatch struct {
	in       *input
	start    *time.Timer   // runs it
	came     chan struct{} // closed when the first bytes have come
	stop     chan struct{} // closed when it must end
	ended    chan struct{} // closed when it has run
	limit    int           // of read, bytes
	read     []byte        // what has come meanwhile
	reserved int64         // of the quota
	err      error
	hungUp   bool      // the client is disconnected
	at       time.Time // when the reading ended
}

// minWatchBuf is small, since most clients that wait send nothing.
const minWatchBuf = 256

// hangupPoll is how often a watch that may read no more checks whether the client has closed.
const hangupPoll = 50 * time.Millisecond

// startWatch begins a watch after a time. The watch ends when the client closes, or by end, which
// waits for it.
func (in *input) startWatch(after time.Duration) *clientWatch {
	w := &clientWatch{
		in: in, limit: maxSessionBuf - (in.end - in.start),
		came: make(chan struct{}), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	w.start = time.AfterFunc(after, w.watch)
	return w
}

func (w *clientWatch) watch() {
	defer close(w.ended)
	for w.err == nil && len(w.read) < w.limit {
		if len(w.read) >= freeBuf && w.reserved == 0 {
			if !w.in.quota.reserve(maxSessionBuf) {
				break
			}
			w.reserved = maxSessionBuf
		}
		w.read = slices.Grow(w.read, minWatchBuf)
		var n int
		n, w.err = w.in.client.from.Read(w.read[len(w.read):cap(w.read)])
		if n > 0 && len(w.read) == 0 {
			close(w.came)
		}
		w.read = w.read[:len(w.read)+n]
	}
	w.at = time.Now()
	w.hungUp = w.err != nil && !isTimeout(w.err) || w.err == nil && w.awaitHangup()
}

// awaitHangup returns true when the client has closed, and false when stop is closed or the server
// shuts down. It reads nothing.
func (w *clientWatch) awaitHangup() bool {
	loopguard.MayWait()
	poll := time.NewTicker(hangupPoll)
	defer poll.Stop()
	for !hungUp(w.in.client.control) {
		if w.in.client.drains() {
			return false
		}
		select {
		case <-w.stop:
			return false
		case <-poll.C:
		}
	}
	return true
}

// end ends the watch and puts what it has read into the input.
func (w *clientWatch) end() {
	loopguard.MayWait()
	if w.start.Stop() {
		return // it hasn't begun
	}
	in := w.in
	close(w.stop)
	in.client.interruptRead()
	<-w.ended
	in.hungUp = in.hungUp || w.hungUp
	in.quota.reserve(-w.reserved)
	in.client.SetReadDeadline(time.Time{})
	if in.client.drains() { // drain may have set its deadline just before it was taken back
		in.client.interruptRead()
	}
	if len(w.read) > 0 {
		in.received(len(w.read))
		in.add(w.read)
	}
	if w.err != nil && !isTimeout(w.err) && in.readErr == nil { // input.peek can have set it
		in.readErr, in.readEnded = w.err, w.at
	}
}
