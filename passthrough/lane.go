package passthrough

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/monotonic"
)

const (
	// maxGathered is how many bytes of requests wait to be sent by a lane before further ones have
	// to wait themselves.
	maxGathered = 256 << 10
	// largeReply is when a reply is too large to share a connection: those that follow it wait for
	// all of it, bytes.
	largeReply = 256 << 10
	// maxSilence is how long a lane may be without an answer that is due before others begin to
	// avoid it.
	maxSilence = 100 * time.Millisecond
)

// lane is one upstream connection that the sessions of one Identity share. Requests enter it by
// add, and leave it by Flush: whoever has added some sends all that is gathered, unless somebody
// already does, who then sends these too. Its reader gives each session its replies. The sessions'
// requests stand in runs, in the order in which they went.
type lane struct {
	key poolKey
	connReader
	onEnd       func()       // called once, when all that was asked has been answered or reported lost
	retired     atomic.Bool  // no further client uses it
	silentSince atomic.Int64 // since when due answers are missing, as monotonic.Now; 0 if none are due
	laneUse                  // guarded by Pool.mu

	mu      sync.Mutex
	room    *sync.Cond
	out     gathered  // guarded by mu
	spans   spanQueue // guarded by mu
	err     error     // guarded by mu
	writers sync.WaitGroup

	current span // only the reader: that it is in
}

// laneUse is what Pool knows of a lane.
type laneUse struct {
	users    int
	unwanted bool   // the proxy itself ends it
	leftAt   uint64 // when it was last left, for the oldest to go first
}

// gathered is requests that wait to be sent together.
type gathered struct {
	raw     []byte
	replies int    // that raw will get
	writing bool   // somebody sends, and will send raw too
	spare   []byte // room for what comes next
}

func newLane(key poolKey, conn net.Conn, loops *eventloop.Loops) *lane {
	l := &lane{key: key}
	l.init(conn, l, loopBuf, loops)
	l.replies.shared = true
	l.room = sync.NewCond(&l.mu)
	return l
}

// serves reports whether further requests should go by this lane. One whose upstream is silent for
// too long doesn't serve those who have not asked yet: it may be busy with a script, and have an
// answer for them.
func (l *lane) serves() bool {
	if since := l.silentSince.Load(); since != 0 && monotonic.Since(since) > maxSilence {
		l.retired.Store(true)
	}
	return !l.retired.Load()
}

// lost reports whether the connection has ended.
func (l *lane) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err != nil
}

// errNoRoom is why a request can't be added to a lane now.
var errNoRoom = errors.New("no room")

// add takes whole requests of a session's, for which its client will be owed e. They are sent by
// Flush. Where there is no room it waits if it may, but not once the session is lost. An error says
// that nothing was taken; but for errNoRoom it is why the lane has ended.
func (l *lane) add(o *client, e pendingReply, raw []byte, mayWait bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.out.raw) > maxGathered && l.err == nil {
		switch {
		case !mayWait || o.isGone():
			return errNoRoom
		case l.out.writing:
			l.room.Wait()
		default:
			l.flushLocked()
		}
	}
	if l.err != nil {
		return l.err
	}
	n := max(1, e.count)
	if !o.expectOnLane(e, n) {
		return errNoRoom
	}
	l.out.raw = append(l.out.raw, raw...)
	l.out.replies += n
	l.spans.push(span{o, n})
	if l.silentSince.Load() == 0 {
		l.silentSince.Store(monotonic.Now())
	}
	return nil
}

// Flush sends what is gathered, unless another goroutine is sending: that goes on until nothing is
// left. It never waits for the upstream.
func (l *lane) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
}

func (l *lane) flushLocked() {
	if l.out.writing {
		return
	}
	l.out.writing = true
	for len(l.out.raw) > 0 {
		raw := l.out.raw
		l.out.raw, l.out.replies, l.out.spare = l.out.spare[:0], 0, nil
		l.room.Broadcast()
		l.mu.Unlock()
		rest := l.write(raw)
		l.mu.Lock()
		if len(rest) > 0 && l.err == nil {
			l.writers.Add(1)
			go l.writeRest(rest) // ends when that is written, or with the lane; read waits for it
			return
		}
		if cap(raw) <= 2*maxGathered {
			l.out.spare = raw[:0]
		}
	}
	l.out.writing = false
}

// write sends what of raw the upstream takes at once, and returns the rest.
func (l *lane) write(raw []byte) (rest []byte) {
	if l.socket == nil {
		return raw // a Write may wait
	}
	n, err := l.socket.TryWrite(raw)
	if err != nil {
		l.close() // the reader reports the loss
		return nil
	}
	return raw[n:]
}

// writeRest waits for room for what is left of a write, and goes on with what was gathered
// meanwhile.
func (l *lane) writeRest(rest []byte) {
	defer l.writers.Done()
	if _, err := l.rw.Write(rest); err != nil {
		l.close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.writing = false
	l.flushLocked()
}

// wakeWaiting makes those who wait for room look whether they still want it.
func (l *lane) wakeWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room.Broadcast()
}

// heard takes note that the upstream has answered something.
func (l *lane) updateSilence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := int64(0)
	if l.current.replies > 0 || l.out.replies > 0 || len(l.spans.list) > l.spans.first {
		since = monotonic.Now()
	}
	l.silentSince.Store(since)
}

// pass gives out what was read, each session's at once.
func (l *lane) distribute(data []byte) error {
	for len(data) > 0 {
		if l.replies.atPush(data) {
			n, err := l.replies.dropPush(data)
			if err != nil {
				return err
			}
			data = data[n:]
			continue
		}
		if l.current.replies == 0 && !l.nextSpan() {
			return errors.New("the upstream sent a reply that nobody had asked for")
		}
		n, done, err := l.current.client.deliverFromLane(&l.replies, data, l.current.replies)
		if err != nil {
			return err
		}
		l.current.replies -= done
		data = data[n:]
		if l.replies.size > largeReply {
			l.retired.Store(true)
		}
	}
	return nil
}

func (l *lane) nextSpan() (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, ok = l.spans.pop()
	return ok
}

// consume is for connReader.
func (l *lane) consume(data []byte) error {
	err := l.distribute(data)
	l.updateSilence()
	return err
}

func (l *lane) mustWait() bool { return false }

func (l *lane) wait() {}

// connEnded is for connReader.
func (l *lane) connEnded(err error) {
	l.reportLoss(err)
	l.writers.Wait()
	close(l.ended)
	l.onEnd()
}

// reportLoss tells every session what it has lost. Nothing is queued behind it.
func (l *lane) reportLoss(err error) {
	l.mu.Lock()
	l.retired.Store(true)
	l.err = err
	list := l.spans.takeAll()
	unsent := l.out.replies
	l.out.raw = nil
	l.room.Broadcast()
	l.mu.Unlock()

	if l.current.replies > 0 {
		list = append([]span{l.current}, list...)
	}
	sent := -unsent
	for _, r := range list {
		sent += r.replies
	}
	for i, r := range list {
		mayHaveRun := min(r.replies, sent)
		sent -= mayHaveRun
		r.client.laneLost(err, mayHaveRun, r.replies-mayHaveRun, i == 0 && l.replies.within())
	}
}
