package passthrough

import (
	"errors"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// replyReader cuts what one upstream connection sends into replies and decides where each goes. It
// does no I/O.
type demux struct {
	scan      resp.Scanner
	dest      replyKind // of the reply that scan is within
	undecided bool      // whether it goes to dest depends on its end: it may be a line of MONITOR's feed, which answers nothing, or a late refusal
	kept      []byte    // what has come of it, if it is captured or may be feed
	size      int       // bytes that have come of it
	out       [][]byte  // what the client is to be given

	shared   bool // the connection is a lane
	dropping bool // scan is within a push that came by a lane
}

// within reports whether the client has been given a part of a reply that is not complete.
func (d *demux) within() bool { return d.scan.Began() && d.dest == relayed && !d.dropping }

// sizeable is from which size on a reply is better read by who may wait for more of it, bytes: the
// event loop, which reads as soon as something has come, would give it to its client in small
// pieces.
const largeEnough = 16 << 10

// large reports whether the reply that is being read, or was last, is sizeable: they are mostly
// followed by their like.
func (d *demux) large() bool { return d.size >= largeEnough }

// meetsPush reports whether data, which came by a lane, begins with a push or the rest of one. It
// belongs to nobody: sessions that may get pushes have connections of their own. But any client may
// name a lane in CLIENT TRACKING REDIRECT.
func (d *demux) atPush(data []byte) bool {
	return d.dropping || d.shared && !d.scan.Began() && data[0] == '>'
}

// drop takes a push from the front of data, as far as it has come.
func (d *demux) dropPush(data []byte) (n int, err error) {
	n, done, err := d.scan.Scan(data)
	d.dropping = !done
	return n, err
}

// sort takes from the front of data up to limit replies to o's requests, -1 for all there are, and
// puts into out what of it the client is to be given, with o.mu held. It returns how many bytes it
// took and how many replies ended there. Pieces for the client that lie side by side in data become
// one.
func (d *demux) cut(o *client, data []byte, limit int) (at, replies int, err error) {
	l := &o.pending
	d.out = d.out[:0]
	from := 0 // data[from:at] goes to the client
	cut := func(to int) {
		if at > from {
			d.out = append(d.out, data[from:at])
		}
		from, at = to, to
	}
	for at < len(data) && replies != limit && !d.atPush(data[at:]) {
		if n, passed := d.cutPlain(l, data[at:], limit-replies); passed > 0 {
			at += n
			replies += passed
			continue
		}
		if !d.scan.Began() {
			d.dest = l.destination(data[at])
			d.undecided = data[at] == '+' && l.monitor && (d.dest != relayed || l.muted()) || data[at] == '-' && l.errorUndecided()
			d.size = 0
		}
		if l.Streaming {
			at = len(data)
			break
		}
		n, done, err := d.scan.Scan(data[at:])
		if err != nil {
			return at, replies, err
		}
		d.size += n
		piece := data[at : at+n]
		if d.dest == relayed && !d.undecided {
			at += n
		} else {
			cut(at + n)
		}
		if d.dest == internal || d.undecided {
			d.kept = append(d.kept, piece...)
			if len(d.kept) > maxCall {
				return at, replies, errors.New("the reply to the proxy's own request is too large")
			}
		}
		if !done {
			continue
		}
		replies++
		e, ok := l.complete(d.scan.Head())
		if ok && e.Accepted != nil && !d.scan.Head().IsError() {
			e.Accepted()
		}
		switch {
		case ok && e.kind != relayed:
			cut(at)
			d.finish(l, e)
		case d.undecided && ok && d.dest == relayed, d.undecided && !ok && !l.muted(): // Redis counts its feed among the replies
			d.out = append(d.out, d.kept)
		}
		d.kept = nil
		for e, ok := l.popReady(); ok; e, ok = l.popReady() {
			cut(at)
			d.finish(l, e)
		}
	}
	cut(at)
	return at, replies, nil
}

// plain takes from the front of data up to limit replies, -1 and less for any number, which go to
// the client, are there whole and change nothing. It leaves the last reply of a run of requests,
// and whatever is not so plain, to sort.
func (d *demux) cutPlain(l *pendingQueue, data []byte, limit int) (at, replies int) {
	if d.scan.Began() || !l.nextIsPlain() {
		return 0, 0
	}
	e := l.head()
	for e.count > 1 && replies != limit {
		n := resp.SmallReply(data[at:])
		if n == 0 {
			break
		}
		at += n
		replies++
		e.count--
		d.size = n
	}
	return at, replies
}

// skip takes replies as sort does, for a session that has ended.
func (d *demux) skip(data []byte, limit int) (at, replies int, err error) {
	d.kept = nil
	for at < len(data) && replies != limit && !d.atPush(data[at:]) {
		n, done, err := d.scan.Scan(data[at:])
		if err != nil {
			return at, replies, err
		}
		at += n
		if done {
			replies++
		}
	}
	return at, replies, nil
}

// act does what is due when an entry has been answered.
func (d *demux) finish(l *pendingQueue, e pendingReply) {
	switch e.kind {
	case internal:
		e.answer.raw, e.answer.err = d.kept, upstream.FailureIn(d.kept)
		close(e.answer.Done)
	case barrier:
		close(e.answer.Done)
	case overridden, local:
		if !l.muted() {
			d.out = append(d.out, e.local)
		}
		l.skipNext = false
	}
}
