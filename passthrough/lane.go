package passthrough

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/fifo"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/upstream"
)

const (
	// maxGathered is how many gathered bytes make further requests wait.
	maxGathered = 256 << 10
	// largeReply is the size from which a reply is too large for a lane, where others wait for all
	// of it, bytes.
	largeReply = 256 << 10
)

// lane is one upstream connection that sessions with the same poolKey share. add gathers requests,
// and Flush sends them, for all sessions at once. The reader gives each session its replies: spans
// says whose they are, in the order of the requests.
type lane struct {
	key         poolKey
	server      upstream.Server
	term        uint64 // Pool.term when it was dialled
	batchScript string // see Config
	connReader
	// called once, when all that was asked has been answered or reported lost
	onEnd func(why error)
	// called when its server has refused a write as a replica. It must not wait.
	onReadOnly func()

	retired atomic.Bool // sessions leave it, and none joins
	silence silence
	laneUse // guarded by Pool.mu

	mu      sync.Mutex
	room    *sync.Cond
	out     gathered         // guarded by mu
	spans   fifo.Queue[span] // guarded by mu
	asked   int              // guarded by mu; for how many replies, ever
	batches []laneBatch      // guarded by mu; those whose replies have not come
	err     error            // guarded by mu
	writers sync.WaitGroup

	// Only the reader:
	current  span // whose replies are coming
	answered int  // replies that have come, ever
}

// span is a number of consecutive replies for one client.
type span struct {
	client  *client
	replies int
}

// pushSpan adds r at the end of q, or to the last span if that has the same client.
func pushSpan(q *fifo.Queue[span], r span) {
	if last := q.Last(); last != nil && last.client == r.client {
		last.replies += r.replies
	} else {
		q.Push(r)
	}
}

// laneBatch is calls that went together: the number, among all replies, of the first one's, and how
// many there are.
type laneBatch struct{ at, calls int }

// laneUse is what the Pool knows of a lane.
type laneUse struct {
	users    int
	unwanted bool   // the pool has closed it
	leftAt   uint64 // Pool.leaves when a session last left it
}

// gathered is the requests to send next.
type gathered struct {
	raw      []byte
	calls    callBatch // go behind raw
	replies  int       // to both
	writing  bool      // a goroutine is sending, and will send these too
	reusable []byte    // memory for the next raw
}

func newLane(key poolKey, conn net.Conn, p *Pool) *lane {
	l := &lane{key: key, batchScript: p.BatchScript}
	l.init(conn, l, loopBuf, p.loops)
	l.replies.shared = true
	l.silence.distance = &p.distance
	l.room = sync.NewCond(&l.mu)
	return l
}

// serves reports whether sessions can use the lane further. When it has been silent for too long
// they can't: Redis may be busy with a script, which it tells them on another connection.
func (l *lane) serves() bool {
	if l.silence.tooLong() {
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

// errNoRoom says that a lane takes no request now.
var errNoRoom = errors.New("no room")

// awaitRoom returns when there may be room for what c adds, or c's session is lost.
func (l *lane) awaitRoom(c *client) {
	loopguard.MayWait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.out.raw) > maxGathered && l.err == nil && !c.over.Load() {
		if l.out.writing {
			l.room.Wait()
		} else {
			l.flushLocked()
		}
	}
}

// add gathers whole requests, or e's call, for which the client will be owed e. After an error
// nothing was gathered. An error other than errNoRoom says why the lane has ended. inLoop says that
// the loop goes on and adds more. The client's mu is held.
func (l *lane) add(c *client, e pendingReply, raw []byte, inLoop bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case len(l.out.raw) > maxGathered:
		return errNoRoom
	}
	c.expectOnLane(e)
	n, call := e.replies(), e.call()
	if call == nil || l.out.calls.has(call) {
		l.closeCallsLocked()
	}
	l.out.raw = append(l.out.raw, raw...)
	l.out.replies += n
	l.asked += n
	pushSpan(&l.spans, span{c, n})
	if call != nil && l.out.calls.add(e.answer, l.batchScript) {
		enough := len(l.out.calls.list) == maxCalls
		l.closeCallsLocked()
		if enough && inLoop {
			l.flushLocked() // Redis can begin while the loop goes on
		}
	}
	l.silence.asked()
	return nil
}

// closeCallsLocked puts the gathered calls among the requests: what is gathered next goes behind
// them. mu is held.
func (l *lane) closeCallsLocked() {
	n := len(l.out.calls.list)
	if n > 0 {
		l.out.raw = l.out.calls.drain(l.out.raw, l.batchScript)
	}
	if n > 1 {
		l.batches = append(l.batches, laneBatch{l.asked - n, n})
	}
}

// Flush sends what is gathered, unless another goroutine is sending: that one goes on until nothing
// is left. It never waits for the upstream.
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
	for l.closeCallsLocked(); len(l.out.raw) > 0; l.closeCallsLocked() {
		raw := l.out.raw
		l.out.raw, l.out.replies, l.out.reusable = l.out.reusable[:0], 0, nil
		l.room.Broadcast()
		l.mu.Unlock()
		n, err := l.tryWrite(raw)
		rest := raw[n:]
		if err != nil {
			l.writeFailed(err) // the reader reports the loss
			rest = nil
		}
		l.mu.Lock()
		if len(rest) > 0 && l.err == nil {
			// Ends when that is written, or with the lane; connEnded waits for it.
			l.writers.Go(func() { l.writeRest(rest) })
			return
		}
		if cap(raw) <= 2*maxGathered {
			l.out.reusable = raw[:0]
		}
	}
	l.out.writing = false
}

// writeRest sends what is left of a write, and then what was gathered meanwhile. It can wait.
func (l *lane) writeRest(rest []byte) {
	loopguard.MayWait()
	if _, err := l.rw.Write(rest); err != nil {
		l.writeFailed(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.writing = false
	l.flushLocked()
}

// wakeWaiting wakes add, which then sees that the session is lost.
func (l *lane) wakeWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room.Broadcast()
}

// distribute gives each session its part of what was read.
func (l *lane) distribute(data []byte) (err error) {
	for len(data) > 0 {
		if !l.replies.opening() && l.replies.atPush(data) {
			n, err := l.replies.dropPush(data)
			if err != nil {
				return err
			}
			data = data[n:]
			continue
		}
		calls, limit, asked := l.next()
		if !asked {
			return errUnasked
		}
		if calls > 0 {
			if data, err = l.replies.openBatch(data, calls); err != nil {
				return err
			}
			if !l.replies.opening() {
				l.batchOpened()
			}
			continue
		}
		n, done, err := l.current.client.deliverFromLane(&l.replies, data, limit)
		l.answered += done
		l.current.replies -= done
		if err != nil {
			return err
		}
		data = data[n:]
		if l.replies.size > largeReply {
			l.retired.Store(true)
		}
		if l.replies.readOnly {
			l.replies.readOnly = false
			l.onReadOnly()
		}
	}
	return nil
}

// next returns how many calls the next reply answers, if it is that to a batch, and otherwise how
// many replies come for current before that. asked is false if none is due.
func (l *lane) next() (calls, replies int, asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current.replies == 0 {
		if l.current, asked = l.spans.Pop(); !asked {
			return 0, 0, false
		}
	}
	replies = l.current.replies
	if len(l.batches) > 0 {
		ahead := l.batches[0].at - l.answered
		if ahead <= 0 {
			return l.batches[0].calls, 0, true
		}
		replies = min(replies, ahead)
	}
	return 0, replies, true
}

// batchOpened records that the replies in the next batch have come as single ones.
func (l *lane) batchOpened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches = l.batches[1:]; len(l.batches) == 0 {
		l.batches = nil
	}
}

// Consume is for eventloop.Reader.
func (l *lane) Consume(data []byte, _ *eventloop.Iteration) error {
	err := l.distribute(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silence.answered(l.current.replies > 0 || l.out.replies > 0 || l.spans.Len() > 0)
	return err
}

// MustWait is for eventloop.Reader. A goroutine reads a large reply better.
func (l *lane) MustWait() bool { return l.replies.large() }

// Wait is for eventloop.Reader.
func (l *lane) Wait() {}

// connEnded is for connReader.
func (l *lane) connEnded(err error) {
	loopguard.MayWait()
	l.reportLoss(err)
	l.writers.Wait()
	close(l.ended)
	l.onEnd(err)
}

// reportLoss tells every session what it has lost. Nothing is gathered after it.
func (l *lane) reportLoss(err error) {
	l.mu.Lock()
	l.retired.Store(true)
	l.err = err
	list := l.spans.PopAll()
	unsent := l.out.replies
	l.out.raw = nil
	l.out.calls.drop()
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
