package passthrough

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/socket"
)

const (
	// maxGathered is how many bytes of requests wait for a lane's writer before further ones have to wait themselves.
	maxGathered = 256 << 10
	// laneBuf is how much of a lane's replies is read at once, bytes: one of 64 KB, with what stands around it.
	laneBuf = 72 << 10
	// largeReply is when a reply is too large to share a connection: those that follow it wait for all of it, bytes.
	largeReply = 256 << 10
	// aloneBefore is after how many writes that had one session's requests to send the next one doesn't wait for others to join it.
	aloneBefore = 4
	// maxAlone is what is certain not to fill the connection while nothing else is on its way, bytes.
	maxAlone = 16 << 10
	// maxSilence is how long a lane may be without an answer that is due before others begin to avoid it.
	maxSilence = 100 * time.Millisecond
)

// lane is one upstream connection that the sessions of one Identity share. Its writer gathers the requests of many sessions into
// one write; its reader gives each session its replies. The sessions' requests stand in runs, in the order in which they went.
type lane struct {
	kind     laneKind
	conn     net.Conn
	way      io.ReadWriter   // conn's bytes
	socket   *socket.Socket  // conn's; nil if way isn't that
	seat     *eventloop.Seat // the reader's; nil if it has none
	wake     chan struct{}
	ended    chan struct{} // closed when all that was asked has been answered or reported lost
	retired  atomic.Bool   // nobody begins to use it any more
	silent   atomic.Int64  // since when answers have been due and none came, as monotonic.Now; 0 if none are due
	users    int           // guarded by Lanes.mu
	unwanted bool          // guarded by Lanes.mu; the proxy itself ends it
	used     uint64        // guarded by Lanes.mu; when it was last left, for the oldest to go first

	mu       sync.Mutex
	room     *sync.Cond
	gathered []byte // guarded by mu; not yet sent
	unsent   int    // guarded by mu; replies that gathered will get
	submits  int    // guarded by mu; how often something was added to gathered
	alone    int    // guarded by mu; how many writes in a row have had a single submit to send
	writing  bool   // guarded by mu; somebody writes, and will see to what is gathered meanwhile
	rest     []byte // guarded by mu; what the connection had no room for of what was taken: the writer is to send it
	turning  bool   // guarded by mu; what is gathered is sent when a turn of the event loop ends
	runs     runs   // guarded by mu
	dead     error  // guarded by mu

	spare   []byte // of who writes: what was sent last
	replies replyReader
	run     run   // the reader's: what it is within
	failed  error // the reader's: what ended the event loop's reading
}

func newLane(kind laneKind, conn net.Conn) *lane {
	l := &lane{kind: kind, conn: conn, way: directly(conn), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.socket, _ = l.way.(*socket.Socket)
	l.replies.shared = true
	l.room = sync.NewCond(&l.mu)
	return l
}

// serves reports whether further requests should go by this lane. One whose upstream is silent for too long doesn't serve those who have
// not asked yet: it may be busy with a script, and have an answer for them.
func (l *lane) serves() bool {
	if l.tooSilent() {
		l.retired.Store(true)
	}
	return !l.retired.Load() && !l.lost()
}

// tooSilent reports whether the upstream has owed answers for so long that others should not stand behind these.
func (l *lane) tooSilent() bool {
	since := l.silent.Load()
	return since != 0 && monotonic.Since(since) > maxSilence
}

// lost reports whether the connection has ended.
func (l *lane) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead != nil
}

// submit queues whole requests of p's which will get n replies, or sends them at once where there is nobody to wait for: nothing is on
// its way, nor has there lately been anything to gather. An error says that nothing of them was or will be sent. Nor will it be
// if p ends before there is room.
func (l *lane) submit(p *Pipe, raw []byte, n int) error {
	l.mu.Lock()
	for len(l.gathered) > maxGathered && l.dead == nil {
		if p.Lost() {
			l.mu.Unlock()
			return nil
		}
		l.room.Wait()
	}
	if l.dead != nil {
		defer l.mu.Unlock()
		return l.dead
	}
	l.gathered = append(l.gathered, raw...)
	l.unsent += n
	l.submits++
	l.runs.push(run{p, n})
	idle := l.silent.Load() == 0
	if idle {
		l.silent.Store(monotonic.Now())
	}
	if idle && l.alone >= aloneBefore && !l.writing && l.submits == 1 && len(raw) <= maxAlone {
		out := l.takeLocked()
		l.mu.Unlock()
		l.send(out)
		return nil
	}
	l.mu.Unlock()
	l.wakeWriter()
	return nil
}

// close ends the lane. It may be called from any goroutine.
func (l *lane) close() {
	l.conn.Close()
	l.seat.Rouse()
}

func (l *lane) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// wakeWaiting makes those who wait for room look whether they still want it.
func (l *lane) wakeWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room.Broadcast()
}

// write sends what is gathered until the lane ends. It yields once before it takes what there is, so that all sessions that
// have something to ask add to it: one write, and one read of the upstream's, for many requests.
func (l *lane) write() {
	for {
		select {
		case <-l.wake:
		case <-l.ended:
			return
		}
		runtime.Gosched()
		l.mu.Lock()
		out := l.rest
		l.rest = nil
		if out == nil {
			if l.writing || len(l.gathered) == 0 {
				l.mu.Unlock()
				continue
			}
			out = l.takeLocked()
		}
		l.mu.Unlock()
		l.send(out)
	}
}

// takeLocked takes what is gathered. The caller must send it. mu is held.
func (l *lane) takeLocked() (out []byte) {
	if l.submits == 1 {
		l.alone = min(l.alone+1, aloneBefore)
	} else {
		l.alone = 0
	}
	out = l.gathered
	l.gathered, l.unsent, l.submits = l.spare[:0], 0, 0
	l.spare = nil
	l.writing = true
	l.room.Broadcast()
	return out
}

// send writes what was taken.
func (l *lane) send(out []byte) {
	if _, err := l.way.Write(out); err != nil {
		l.close() // the reader reports the loss
	}
	l.sent(out)
}

// sent gives up being the one who writes, when all of what was taken has been.
func (l *lane) sent(out []byte) {
	l.mu.Lock()
	l.writing = false
	if cap(out) <= 2*maxGathered {
		l.spare = out[:0]
	}
	more := len(l.gathered) > 0
	l.mu.Unlock()
	if more {
		l.wakeWriter()
	}
}

// read gives out replies until the connection ends, then reports what was lost.
func (l *lane) read() {
	err := l.copyReplies()
	if l.socket != nil {
		l.seat.Close(l.socket.Raw())
	}
	l.conn.Close()
	l.end(err)
	close(l.ended)
}

func (l *lane) copyReplies() error {
	var buf []byte
	for drained := true; ; {
		if drained && !l.replies.large() && l.socket != nil && l.seat.Enter(l.socket.Raw()) {
			if l.seat.Wait(); l.failed != nil {
				return l.failed
			}
		}
		if buf == nil {
			buf = make([]byte, laneBuf)
		}
		n, err := l.way.Read(buf)
		drained = n < len(buf)
		if perr := l.pass(buf[:n]); perr != nil {
			return perr
		}
		l.heard()
		if errors.Is(err, io.EOF) {
			return errClosedByUpstream
		}
		if err != nil {
			return err
		}
	}
}

// heard takes note that the upstream has answered something.
func (l *lane) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := int64(0)
	if l.run.replies > 0 || l.unsent > 0 || len(l.runs.list) > l.runs.first {
		since = monotonic.Now()
	}
	l.silent.Store(since)
}

// pass gives out what was read, each session's at once.
func (l *lane) pass(data []byte) error {
	for len(data) > 0 {
		if l.replies.meetsPush(data) {
			n, err := l.replies.drop(data)
			if err != nil {
				return err
			}
			data = data[n:]
			continue
		}
		if l.run.replies == 0 && !l.nextRun() {
			return errors.New("the upstream sent a reply that nobody had asked for")
		}
		n, done, err := l.run.pipe.passShared(&l.replies, data, l.run.replies)
		if err != nil {
			return err
		}
		l.run.replies -= done
		data = data[n:]
		if l.replies.size > largeReply {
			l.retired.Store(true)
		}
	}
	return nil
}

func (l *lane) nextRun() (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run, ok = l.runs.pop()
	return ok
}

// end tells every session what it has lost. Nothing is queued behind it.
func (l *lane) end(err error) {
	l.mu.Lock()
	l.dead = err
	list := l.runs.takeAll()
	unsent := l.unsent
	l.gathered = nil
	l.room.Broadcast()
	l.mu.Unlock()

	if l.run.replies > 0 {
		list = append([]run{l.run}, list...)
	}
	sent := -unsent
	for _, r := range list {
		sent += r.replies
	}
	for i, r := range list {
		mayHaveRun := min(r.replies, sent)
		sent -= mayHaveRun
		r.pipe.lostShared(err, mayHaveRun, r.replies-mayHaveRun, i == 0 && l.replies.within())
	}
}
