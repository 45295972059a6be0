package passthrough

import (
	"errors"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// replyReader cuts what one upstream connection sends into replies and decides where each goes. It
// does no I/O.
type replyReader struct {
	scan resp.Scanner
	dest entryKind // of the reply that scan is within
	feed bool      // whether it goes to dest depends on its end: it may be a line of MONITOR's feed, which answers nothing, or a late refusal
	keep []byte    // what has come of it, if it is captured or may be feed
	size int       // bytes that have come of it
	out  [][]byte  // what the client is to be given

	shared   bool // the connection is a lane
	dropping bool // scan is within a push that came by a lane
}

// within reports whether the client has been given a part of a reply that is not complete.
func (r *replyReader) within() bool { return r.scan.Began() && r.dest == relayed && !r.dropping }

// sizeable is from which size on a reply is better read by who may wait for more of it, bytes: the
// event loop, which reads as soon as something has come, would give it to its client in small
// pieces.
const sizeable = 16 << 10

// large reports whether the reply that is being read, or was last, is sizeable: they are mostly
// followed by their like.
func (r *replyReader) large() bool { return r.size >= sizeable }

// meetsPush reports whether data, which came by a lane, begins with a push or the rest of one. It
// belongs to nobody: sessions that may get pushes have connections of their own. But any client may
// name a lane in CLIENT TRACKING REDIRECT.
func (r *replyReader) meetsPush(data []byte) bool {
	return r.dropping || r.shared && !r.scan.Began() && data[0] == '>'
}

// drop takes a push from the front of data, as far as it has come.
func (r *replyReader) drop(data []byte) (n int, err error) {
	n, done, err := r.scan.Scan(data)
	r.dropping = !done
	return n, err
}

// sort takes from the front of data up to limit replies to o's requests, -1 for all there are, and
// puts into out what of it the client is to be given, with o.mu held. It returns how many bytes it
// took and how many replies ended there. Pieces for the client that lie side by side in data become
// one.
func (r *replyReader) sort(o *owed, data []byte, limit int) (at, replies int, err error) {
	l := &o.ledger
	r.out = r.out[:0]
	from := 0 // data[from:at] goes to the client
	cut := func(to int) {
		if at > from {
			r.out = append(r.out, data[from:at])
		}
		from, at = to, to
	}
	for at < len(data) && replies != limit && !r.meetsPush(data[at:]) {
		if n, passed := r.plain(l, data[at:], limit-replies); passed > 0 {
			at += n
			replies += passed
			continue
		}
		if !r.scan.Began() {
			r.dest = l.destination(data[at])
			r.feed = data[at] == '+' && l.monitor && (r.dest != relayed || l.muted()) || data[at] == '-' && l.unsure()
			r.size = 0
		}
		if l.Raw {
			at = len(data)
			break
		}
		n, done, err := r.scan.Scan(data[at:])
		if err != nil {
			return at, replies, err
		}
		r.size += n
		piece := data[at : at+n]
		if r.dest == relayed && !r.feed {
			at += n
		} else {
			cut(at + n)
		}
		if r.dest == captured || r.feed {
			r.keep = append(r.keep, piece...)
			if len(r.keep) > maxCall {
				return at, replies, errors.New("the reply to the proxy's own request is too large")
			}
		}
		if !done {
			continue
		}
		replies++
		e, ok := l.finished(r.scan.Head())
		if ok && e.Accepted != nil && !r.scan.Head().IsError() {
			e.Accepted()
		}
		switch {
		case ok && e.kind != relayed:
			cut(at)
			r.act(l, e)
		case r.feed && ok && r.dest == relayed, r.feed && !ok && !l.muted(): // Redis counts its feed among the replies
			r.out = append(r.out, r.keep)
		}
		r.keep = nil
		for e, ok := l.ready(); ok; e, ok = l.ready() {
			cut(at)
			r.act(l, e)
		}
	}
	cut(at)
	return at, replies, nil
}

// plain takes from the front of data up to limit replies, -1 and less for any number, which go to
// the client, are there whole and change nothing. It leaves the last reply of a run of requests,
// and whatever is not so plain, to sort.
func (r *replyReader) plain(l *ledger, data []byte, limit int) (at, replies int) {
	if r.scan.Began() || !l.relaysPlainly() {
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
		r.size = n
	}
	return at, replies
}

// skip takes replies as sort does, for a session that has ended.
func (r *replyReader) skip(data []byte, limit int) (at, replies int, err error) {
	r.keep = nil
	for at < len(data) && replies != limit && !r.meetsPush(data[at:]) {
		n, done, err := r.scan.Scan(data[at:])
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
func (r *replyReader) act(l *ledger, e entry) {
	switch e.kind {
	case captured:
		e.answer.raw, e.answer.err = r.keep, upstream.FailureIn(r.keep)
		close(e.answer.Done)
	case marker:
		close(e.answer.Done)
	case replaced, local:
		if !l.muted() {
			r.out = append(r.out, e.local)
		}
		l.skipNext = false
	}
}
