package passthrough

import (
	"bytes"
	"errors"
	"strconv"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// demux cuts what one upstream connection sends into replies and decides where each goes. It does
// no I/O.
type demux struct {
	scan resp.Scanner
	dest replyKind // of the reply that scan is within
	// only the whole reply shows whether it goes to dest: it can be a line of MONITOR, a message, or
	// a late refusal
	undecided bool
	collected []byte   // its bytes so far, if it is internal or undecided
	tooLarge  bool     // it is internal, and not kept
	size      int      // its bytes so far
	out       [][]byte // for the client

	shared   bool // the connection is a lane
	readOnly bool // and its server has refused a write as a replica
	dropping bool // scan is within a push on a lane

	batchHead []byte   // the beginning of the reply to a batch of calls, as far as it has come
	refusing  int      // how many of the next replies are Redis's one reply to a whole batch
	waiters   []Waiter // of the answers that have come
}

// maxRefusal bounds the error with which Redis refuses a batch of calls, bytes.
const maxRefusal = 64 << 10

// errBatch is why a connection can't be used any more: what follows are not the calls' replies.
var errBatch = errors.New("the upstream's reply to a batch of scripts is not one")

// openBatch takes the header off the reply to a batch of calls: as many replies follow. If Redis has
// refused the batch they all get the error. It returns the rest of data.
func (d *demux) openBatch(data []byte, calls int) (rest []byte, err error) {
	end := bytes.IndexByte(data, '\n') + 1
	if end == 0 {
		end = len(data)
	}
	d.batchHead = append(d.batchHead, data[:end]...)
	data = data[end:]
	switch head := d.batchHead; {
	case len(head) > maxRefusal || head[0] != '*' && head[0] != '-':
		return nil, errBatch
	case head[len(head)-1] != '\n':
		return data, nil
	case head[0] == '*' && string(head) != "*"+strconv.Itoa(calls)+"\r\n":
		return nil, errBatch
	case head[0] == '-':
		d.refusing = calls
		data = append(bytes.Repeat(head, calls), data...)
	}
	d.batchHead = nil
	return data, nil
}

// opening reports whether openBatch needs more data.
func (d *demux) opening() bool { return len(d.batchHead) > 0 }

// tellWaiters tells those whose answers have come.
func (d *demux) tellWaiters(it *eventloop.Iteration) {
	for i, w := range d.waiters {
		d.waiters[i] = nil
		w.Answered(it)
	}
	d.waiters = d.waiters[:0]
}

// maxIdlePieces is for how many pieces of replies memory is kept for the next ones.
const maxIdlePieces = 1024

// forget drops out, which keeps what was read in memory.
func (d *demux) forget() {
	if cap(d.out) > maxIdlePieces {
		d.out = nil
	}
	clear(d.out[:cap(d.out)]) // sendLocked can have added pushes
	d.out = d.out[:0]
}

// within reports whether the client has got a part of a reply.
func (d *demux) within() bool {
	return d.scan.Began() && d.dest == relayed && !d.dropping && d.size > 0
}

// largeEnough is the size from which a goroutine reads a reply better, bytes: it waits for more of
// it. The event loop would relay it in small pieces.
const largeEnough = 16 << 10

// large reports whether the current or last reply is large: others like it often follow.
func (d *demux) large() bool { return d.size >= largeEnough }

// atPush reports whether data begins with a push, or the rest of one, that came by a lane. It is
// for no client: clients that get pushes are at home. But any client can name a lane in CLIENT
// TRACKING REDIRECT.
func (d *demux) atPush(data []byte) bool {
	return d.dropping || d.shared && !d.scan.Began() && data[0] == '>'
}

// dropPush skips a push at the front of data, as far as it has arrived.
func (d *demux) dropPush(data []byte) (n int, err error) {
	n, done, err := d.scan.Scan(data)
	d.dropping = !done
	return n, err
}

// errUnasked is why a connection can't be used any more: what the upstream says next could be taken
// for the reply to another request. Redis says why it closes a connection, and then closes it.
var errUnasked = errors.New("the upstream sent a reply that nobody had asked for")

// errSetUp is likewise: the upstream's reply to what sets a connection up is another's, and so are
// those behind it.
var errSetUp = errors.New("the upstream sent a reply that does not fit the setup of a connection")

// cut cuts up to limit replies from the front of data, and puts the bytes for the client into out.
// It returns how many bytes it has cut, and how many replies ended there. Adjacent pieces for the
// client become one. After an error, out has the replies before the one that is wrong, and nothing
// that this call has found of that one. The client's mu is held.
func (d *demux) cut(q *pendingQueue, data []byte, limit int) (at, replies int, err error) {
	d.out = d.out[:0]
	from := 0 // data[from:at] goes to the client
	cut := func(to int) {
		if at > from {
			d.out = append(d.out, data[from:at])
		}
		from, at = to, to
	}
	for at < len(data) && replies != limit && !d.atPush(data[at:]) && !d.atBatch(q, data[at:]) {
		if n, passed := d.cutPlain(q, data[at:], limit-replies); passed > 0 {
			at += n
			replies += passed
			continue
		}
		if !d.scan.Began() {
			if q.unasked(data[at]) {
				cut(at)
				return at, replies, errUnasked
			}
			d.dest = q.destination(data[at])
			d.undecided = data[at] == '+' && q.Has(monitoring) && (d.dest != relayed || q.Muted()) ||
				data[at] == '-' && q.monitorAgain > 0 || data[at] == '*' && q.mutedPing()
			d.size = 0
		}
		if q.Has(Streaming) {
			at = len(data)
			break
		}
		n, done, err := d.scanReply(q, data[at:])
		if err != nil {
			cut(at)
			return at, replies, err
		}
		d.size += n
		piece := data[at : at+n]
		if d.dest == relayed && !d.undecided {
			at += n
		} else {
			cut(at + n)
		}
		if err := d.collect(q, piece); err != nil {
			return at, replies, err
		}
		if !done {
			continue
		}
		replies++
		if d.shared && upstream.IsReadOnly(d.scan.Head()) {
			d.readOnly = true
		}
		e, ok := q.complete(d.scan.Head())
		q.set(Untracked, q.Has(Untracked) || d.scan.Head().PushWithin)
		if head := d.scan.Head(); ok && e.setsUp && !head.IsOK() && !head.IsError() {
			cut(at)
			return at, replies, errSetUp
		}
		if ok && e.Replied != nil {
			e.Replied(d.scan.Head())
		}
		switch {
		case ok && e.kind != relayed:
			cut(at)
			d.finish(q, e)
		// Redis counts MONITOR's lines among the replies, but not messages
		case d.undecided && ok && d.dest == relayed,
			d.undecided && !ok && (!q.Muted() || d.scan.Head().Type == '*'):
			d.out = append(d.out, d.collected)
		}
		d.collected, d.tooLarge, d.refusing = nil, false, max(0, d.refusing-1)
		for e, ok := q.popReady(); ok; e, ok = q.popReady() {
			cut(at)
			d.finish(q, e)
		}
	}
	cut(at)
	return at, replies, nil
}

// scanReply scans the current reply. A push within it is an error, which ends the connection, since
// what follows can't be matched with requests: others' on a lane, the proxy's own at home. Only a
// home that owes nothing but what its client sees goes on, Untracked.
func (d *demux) scanReply(q *pendingQueue, data []byte) (n int, done bool, err error) {
	relays := d.dest == relayed && !d.undecided && q.unseen == 0
	if !d.shared && (q.Has(Untracked) || relays) {
		return d.scan.ScanWithPushes(data)
	}
	return d.scan.Scan(data)
}

// collect keeps a piece of a reply that is internal or undecided. An Answer that is too large is an
// error, and others that come by the connection do not suffer from it.
func (d *demux) collect(q *pendingQueue, piece []byte) error {
	if d.tooLarge || d.dest != internal && !d.undecided {
		return nil
	}
	d.collected = append(d.collected, piece...)
	switch {
	case len(d.collected) <= maxCall:
	case d.undecided || q.head().answer == nil:
		return errors.New("the reply to the proxy's own request is too large")
	default:
		d.collected, d.tooLarge = nil, true
	}
	return nil
}

// errTooLarge is the error of an Answer that was too large to be kept.
var errTooLarge = errors.New("has run the command, but its reply of more than 64 MiB was not kept")

// atBatch reports whether data begins with the reply to a batch of calls that went by a home: see
// openBatch.
func (d *demux) atBatch(q *pendingQueue, data []byte) bool {
	e := q.head()
	return !d.scan.Began() && e != nil && e.answer != nil && e.answer.calls > 0 &&
		(d.opening() || data[0] != '>')
}

// cutPlain cuts up to limit replies from the front of data that are whole, go to the client and
// change nothing. It leaves everything else to cut.
func (d *demux) cutPlain(q *pendingQueue, data []byte, limit int) (at, replies int) {
	for !d.scan.Began() && replies != limit && q.nextIsPlain() {
		n := resp.SmallReply(data[at:])
		if n == 0 {
			break
		}
		at += n
		replies++
		d.size = n
		if e := q.head(); e.count > 1 {
			e.count--
		} else {
			q.pop()
		}
	}
	return at, replies
}

// skip is cut for a session that has ended.
func (d *demux) skip(data []byte, limit int) (at, replies int, err error) {
	d.collected, d.tooLarge = nil, false
	for at < len(data) && replies != limit && !d.atPush(data[at:]) {
		n, done, err := d.scan.Scan(data[at:])
		if err != nil {
			return at, replies, err
		}
		at += n
		if done {
			replies++
			d.refusing = max(0, d.refusing-1)
		}
	}
	return at, replies, nil
}

// arrived ends the wait for an Answer. tellWaiters tells who waits.
func (d *demux) arrived(a *Answer) {
	if n := len(d.waiters); a.waiter != nil && (n == 0 || d.waiters[n-1] != a.waiter) {
		d.waiters = append(d.waiters, a.waiter)
	}
	close(a.Done)
}

// finish acts on an entry that has been answered.
func (d *demux) finish(q *pendingQueue, e pendingReply) {
	switch e.kind {
	case internal:
		if e.answer == nil {
			e.took(d.collected)
			return
		}
		e.answer.raw, e.answer.err = d.collected, upstream.FailureIn(d.collected)
		if d.tooLarge {
			e.answer.err = errTooLarge
		}
		e.answer.refused = d.refusing > 0
		d.arrived(e.answer)
	case barrier:
		d.arrived(e.answer)
	case overridden, local:
		if !q.Muted() {
			d.out = append(d.out, e.local)
		}
		q.set(skipNext, false)
	}
}
