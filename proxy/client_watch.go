package proxy

import (
	"slices"
	"sync/atomic"
	"time"

	"lockproxy/passthrough"
)

// goneGrace is how much longer the upstream may take for a client that has closed: it may have closed only its sending side,
// and be reading still, as "printf … | nc" does.
const goneTimeout = 250 * time.Millisecond

// watchAfter is how long a session waits for the upstream before it begins to watch its client meanwhile. Watching costs a
// goroutine, and most answers come sooner.
const watchAfter = 5 * time.Millisecond

// watchWaiterAfter is how long a session waits in line before it begins to watch its client. Where a lock changes hands quickly most
// waits are over by then. Who was gone before is found out when his turn comes, see Gone.
const watchWaiterAfter = 20 * time.Millisecond

// await returns when the answer is there. If that takes long it reads on from the client meanwhile, as far as the buffer
// goes, so that a client which closes is noticed: then the upstream is told, and the answer comes as a failure.
func (s *session) await(answer *passthrough.Answer) { s.awaitUntil(answer, time.Time{}) }

// awaitUntil is await that gives up at a time, and returns false then. It doesn't while the client is owed something by
// others, since its answers come in order. A zero time is never.
func (s *session) awaitUntil(answer *passthrough.Answer, until time.Time) (answered bool) {
	select {
	case <-answer.Done:
		return true
	default:
	}
	s.pipe.Awaiting(true)
	defer s.pipe.Awaiting(false)
	if s.timer == nil {
		s.timer = time.NewTimer(watchAfter)
	} else {
		s.timer.Reset(watchAfter)
	}
	select {
	case <-answer.Done:
		s.timer.Stop()
		return true
	case <-s.timer.C:
	}
	var over <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	expired := false
	if s.readErr == nil && s.watch == nil {
		w := s.startWatch(0)
		select {
		case <-answer.Done:
		case <-w.ended:
		case <-over:
			expired = true
		}
		s.stopWatch(w)
	}
	if s.readErr != nil {
		s.timer.Reset(goneTimeout)
		select {
		case <-answer.Done:
			s.timer.Stop()
		case <-s.timer.C:
			s.pipe.End(passthrough.ClientGone)
		}
		over, expired = nil, false
	}
	if !expired {
		select {
		case <-answer.Done:
			return true
		case <-over:
		}
	}
	if !s.pipe.Status().Owes {
		return false
	}
	<-answer.Done
	return true
}

// endWatch ends the watch of a lock command, once its answer is on its way: that must not wait for this.
func (s *session) endWatch() {
	if s.watch != nil {
		s.setPhase(serving)
		s.stopWatch(s.watch)
		s.watch = nil
		s.pipe.Flush() // what has come meanwhile begins anew: a connect that failed during the wait says nothing about it
	}
}

// watch reads from the client while its session waits for something else.
type clientWatch struct {
	start    *time.Timer   // runs it
	gone     chan struct{} // closed before ended if the client is
	stop     chan struct{} // closed when it is to end
	ended    chan struct{} // closed when it has run
	limit    int           // of read, bytes
	read     []byte        // what has come meanwhile
	in       atomic.Int64  // how much that is
	reserved int64         // of it, what is accounted for in the server's buffers
	err      error
}

// minWatchBuf is little, since most clients that wait send nothing.
const minWatchBuf = 256

// hangupPoll is how often a watch that has read as much as it may keep looks whether the client has closed.
const hangupPoll = 50 * time.Millisecond

// startWatch begins a watch after a time. It ends when the client does, or by stopWatch, which waits for it.
func (s *session) startWatch(after time.Duration) *clientWatch {
	w := &clientWatch{gone: make(chan struct{}), stop: make(chan struct{}), ended: make(chan struct{}), limit: maxSessionBuf - (s.end - s.start)}
	w.start = time.AfterFunc(after, func() { s.runWatch(w) })
	return w
}

func (s *session) runWatch(w *clientWatch) {
	defer close(w.ended)
	for w.err == nil && len(w.read) < w.limit {
		if len(w.read) >= freeBuf && w.reserved == 0 {
			if !s.server.buffers.reserve(maxSessionBuf) {
				break
			}
			w.reserved = maxSessionBuf
		}
		w.read = slices.Grow(w.read, minWatchBuf)
		var n int
		n, w.err = s.from.Read(w.read[len(w.read):cap(w.read)])
		w.read = w.read[:len(w.read)+n]
		w.in.Store(int64(len(w.read)))
	}
	if w.err != nil && (!isTimeout(w.err) || s.drains()) || w.err == nil && s.awaitHangup(w.stop) {
		close(w.gone)
	}
}

// awaitHangup returns true when the client has closed or the server is shutting down, and false when stop is closed. It reads nothing.
func (s *session) awaitHangup(stop <-chan struct{}) bool {
	look := time.NewTicker(hangupPoll)
	defer look.Stop()
	for !s.drains() && !hungUp(s.raw) {
		select {
		case <-stop:
			return false
		case <-look.C:
		}
	}
	return true
}

// stopWatch ends the watch and keeps what it has read.
func (s *session) stopWatch(w *clientWatch) {
	if w.start.Stop() {
		return // it hasn't begun
	}
	close(w.stop)
	s.nc.SetReadDeadline(time.Unix(1, 0))
	<-w.ended
	s.server.buffers.reserve(-w.reserved)
	s.nc.SetReadDeadline(time.Time{})
	if s.drains() { // drain may have set its deadline just before it was taken back
		s.nc.SetReadDeadline(time.Unix(1, 0))
	}
	if len(w.read) > 0 {
		s.meter.addRead(len(w.read))
		s.holder.MarkDelivered(s.meter.in.Load())
		s.addRead(w.read)
	}
	if w.err != nil && !isTimeout(w.err) {
		s.readErr = w.err
	}
}

// keep takes into the buffer what a watch has read, behind what has not been passed on yet. What has been leaves it, but stays where it is
// for those who have requests from it.
func (s *session) addRead(read []byte) {
	if s.start > 0 {
		unread := s.buf[s.start:s.end]
		s.buf = append(make([]byte, 0, max(minSessionBuf, len(unread)+len(read))), unread...)
		s.start, s.end = 0, len(unread)
	}
	s.buf = append(s.buf[:s.end], read...)
	s.end = len(s.buf)
	s.buf = s.buf[:cap(s.buf)]
	s.reserveBuffer(len(s.buf)) // it holds it in any case
	s.watchedBytes += len(read)
}

// A client whose machine has vanished closes nothing. While it has a session lock, or waits for a lock,
// others wait for it. So its kernel has to answer the proxy's: within the shortest lease of its session
// locks, and these bounds.
const (
	minSilence = 10 * time.Second // a laptop may take so long to change its network
	maxSilence = 30 * time.Second
)

// silenceLimit is for how long the client's machine may answer nothing; 0 is for as long as the kernel
// allows. The guard calls it.
func (s *session) silenceLimit() time.Duration {
	lease := s.holder.ShortestLease()
	switch {
	case lease > 0:
		return min(max(lease.Round(time.Second), minSilence), maxSilence)
	case s.is(locking):
		return maxSilence
	}
	return 0
}
