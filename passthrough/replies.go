package passthrough

import (
	"errors"
	"io"
	"time"

	"lockproxy/internal/resp"
)

// replyReader is the upstream-to-client half of a Pipe, run by one goroutine.
type replyReader struct {
	pipe *Pipe
	buf  []byte
	scan resp.Scanner
	dest entryKind // of the reply that scan is within
	feed bool      // whether it goes to dest depends on its end: it may be a line of MONITOR's feed, which answers nothing
	keep []byte    // what has come of it, if it is captured or may be feed
	out  [][]byte  // what this read gives to the client
}

// run copies replies until a connection ends, and returns why.
func (r *replyReader) run() error {
	p := r.pipe
	r.buf = make([]byte, minBuf)
	for {
		n, err := p.up.Read(r.buf)
		if n > 0 {
			if err := r.pass(r.buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return errors.New("closed by the upstream")
		}
		if err != nil {
			return err
		}
		if n == len(r.buf) && n < bufSize {
			r.buf = make([]byte, 2*n)
		}
	}
}

// pass gives the client its part of what was read, in as few writes as the proxy's own replies in between allow.
func (r *replyReader) pass(data []byte) error {
	p := r.pipe
	p.wmu.Lock()
	defer p.releaseClient()

	p.mu.Lock()
	r.out = r.out[:0]
	err := r.sort(data)
	p.within = r.scan.Began() && r.dest == relayed || p.ledger.Raw
	if p.leaving {
		p.up.SetReadDeadline(time.Now().Add(linger))
	}
	p.room.Signal()
	p.mu.Unlock()

	for _, piece := range r.out {
		if _, werr := p.client.Write(piece); werr != nil {
			return errors.Join(errors.New("client is gone"), werr)
		}
	}
	return err
}

// sort cuts data at the ends of replies and decides where each piece goes, with mu held. Pieces for the client that lie side
// by side in data become one.
func (r *replyReader) sort(data []byte) error {
	l := &r.pipe.ledger
	from, at := 0, 0 // data[from:at] goes to the client
	cut := func(to int) {
		if at > from {
			r.out = append(r.out, data[from:at])
		}
		from, at = to, to
	}
	for at < len(data) {
		if !r.scan.Began() {
			r.dest = l.destination(data[at])
			r.feed = data[at] == '+' && l.monitor && (r.dest != relayed || l.muted())
		}
		if l.Raw {
			at = len(data)
			break
		}
		n, done, err := r.scan.Scan(data[at:])
		if err != nil {
			return err
		}
		piece := data[at : at+n]
		if r.dest == relayed && !r.feed {
			at += n
		} else {
			cut(at + n)
		}
		if r.dest == captured || r.feed {
			r.keep = append(r.keep, piece...)
			if len(r.keep) > maxCall {
				return errors.New("the reply to the proxy's own request is too large")
			}
		}
		if !done {
			continue
		}
		e, ok := l.finished(r.scan.Head())
		switch {
		case ok && e.kind != relayed:
			cut(at)
			r.act(e)
		case r.feed && ok && r.dest == relayed, r.feed && !ok && !l.muted(): // Redis counts its feed among the replies
			r.out = append(r.out, r.keep)
		}
		r.keep = nil
		for e, ok := l.ready(); ok; e, ok = l.ready() {
			cut(at)
			r.act(e)
		}
	}
	cut(at)
	return nil
}

// act does what is due when an entry has been answered.
func (r *replyReader) act(e entry) {
	l := &r.pipe.ledger
	switch e.kind {
	case captured:
		e.answer.raw = r.keep
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
