// Package resp finds the boundaries of Redis protocol messages (RESP2, RESP3 and inline commands) and encodes the few
// that lockproxy speaks itself.
//
// It does no I/O, starts no goroutine and reads no clock. A Framer is fed the bytes that a client sent and says where each
// request ends; a Scanner is fed the bytes that Redis sent and says where each reply ends. Both are incremental: they
// may be fed a byte at a time, look at a byte once, never allocate what a peer merely announces, and accept just
// what Redis accepts, since a proxy and a Redis that disagree about where a request ends can be played against each other.
//
// Neither keeps the bytes: the caller does, and may give away the first part of a large message before the rest has come.
package resp

import (
	"bytes"
	"math"
)

// Redis's own limits (server.h, networking.c): what a Framer with zero Limits enforces.
const (
	MaxInlineLen = 64 << 10      // bytes of an inline command, and of any header line
	MaxBulkLen   = 512 << 20     // proto-max-bulk-len's default, bytes
	MaxArgCount  = math.MaxInt32 // arguments of one request

	// of a client that must log in first
	maxStrangerArgs = 10
	maxStrangerBulk = 16 << 10 // bytes
)

// Limits bounds what a client may announce. A zero field means Redis's own limit.
type Limits struct {
	Args   int   // arguments of one request
	Bulk   int64 // bytes of one argument
	Inline int   // bytes of an inline command or of a header line
}

func (l Limits) withDefaults() Limits {
	if l.Args == 0 {
		l.Args = MaxArgCount
	}
	if l.Bulk == 0 {
		l.Bulk = MaxBulkLen
	}
	if l.Inline == 0 {
		l.Inline = MaxInlineLen
	}
	return l
}

// ProtocolError is a request that Redis would refuse with "ERR Protocol error: …" before closing the connection.
type ProtocolError struct {
	Reason string
	// Unauthenticated says that the limit is for clients that must log in first: if this one need not,
	// tell the Framer and call Next again.
	Unauthenticated bool
}

func (e *ProtocolError) Error() string { return "Protocol error: " + e.Reason }

// Request is one framed request, or a piece of one that is being streamed.
type Request struct {
	Raw    []byte   // the bytes as the client sent them; aliases the caller's buffer
	Args   [][]byte // name and arguments; nil for a piece of a streamed request. Valid until the next call of Next
	Inline bool     // sent as a line, not as an array
}

type span struct{ from, to int }

type framerPhase uint8

const (
	atStart  framerPhase = iota // nothing of the request has been seen
	atHeader                    // at the "$" line of an argument
	atBody                      // within an argument
)

// Framer splits one client's byte stream into requests. Its zero value is not ready: use NewFramer. Not safe for concurrent use.
type Framer struct {
	limits Limits
	phase  framerPhase
	pos    int   // bytes of the caller's buffer that have been scanned for this request
	seen   int   // where the search for the end of the current line goes on; 0 when it has not begun
	left   int   // arguments not yet complete
	argc   int   // arguments announced
	body   int64 // bytes of the current argument and its CRLF still to come
	stream bool  // the caller has given away the beginning of this request
	// unauthenticated says that the client must log in first, for all that the caller knows.
	unauthenticated bool
	spans           []span
	args            [][]byte
}

// NewFramer returns a Framer at the start of a stream.
func NewFramer(limits Limits) *Framer { return &Framer{limits: limits.withDefaults()} }

// Unauthenticated says whether the client must log in before it may do anything else. Redis then
// allows it ten arguments of 16 KB each; see ProtocolError. Of a request that is streamed the rest is
// left for Redis to judge.
func (f *Framer) Unauthenticated(yes bool) { f.unauthenticated = yes }

// Next scans buf, which must begin with the first byte that no Request has returned yet, and reports the request there.
// ok false means that buf ends before the request does: call again with the same bytes and more.
// A request without arguments ("*0", an empty line) is returned with no Args: Redis ignores it, and so should the caller.
//
// While a request is streamed (see Stream), Next returns its further bytes in Raw; ok is true with the last of them.
// After an error, which is always a *ProtocolError, the stream has no further requests, unless the error
// is Unauthenticated.
func (f *Framer) Next(buf []byte) (req Request, ok bool, err error) {
	for {
		switch f.phase {
		case atStart:
			if len(buf) == 0 {
				return Request{}, false, nil
			}
			if buf[0] != '*' {
				return f.inline(buf)
			}
			if end := f.small(buf); end > 0 {
				f.pos = end
				return f.finish(buf), true, nil
			}
			n, end, err := f.number(buf, 0, "too big mbulk count string", "invalid multibulk length", math.MinInt64, int64(f.limits.Args))
			if err != nil || end == 0 {
				return Request{}, false, err
			}
			if n <= 0 {
				return Request{Raw: buf[:end]}, true, nil
			}
			if n > maxStrangerArgs && f.unauthenticated {
				return Request{}, false, &ProtocolError{"unauthenticated multibulk length", true}
			}
			f.pos, f.left, f.argc, f.phase = end, int(n), int(n), atHeader
			f.spans = f.spans[:0]
		case atHeader:
			n, end, err := f.bulkHeader(buf)
			if err != nil {
				return Request{}, false, err
			}
			if end == 0 {
				return f.part(buf), false, nil
			}
			f.pos, f.body, f.phase = end, n+2, atBody
			if !f.stream {
				f.spans = append(f.spans, span{end, end + int(n)})
			}
		case atBody:
			have := int64(len(buf) - f.pos)
			if have < f.body {
				if f.stream {
					f.pos, f.body = len(buf), f.body-have
				}
				return f.part(buf), false, nil
			}
			f.pos += int(f.body)
			f.phase = atHeader
			if f.left--; f.left == 0 {
				return f.finish(buf), true, nil
			}
		}
	}
}

// Head returns the arguments of the incomplete request in buf that have come whole, and how many it has in all.
// It says enough to route a request that is too large to be held.
func (f *Framer) Head(buf []byte) (args [][]byte, argc int) {
	if f.phase == atStart || f.stream {
		return nil, 0
	}
	whole := len(f.spans)
	if f.phase == atBody {
		whole--
	}
	return f.slices(buf, whole), f.argc
}

// Stream gives up holding the incomplete request in buf: the returned bytes are scanned and may be sent on and forgotten,
// and from now on Next returns the request piece by piece. The next buffer must begin right behind them.
func (f *Framer) Stream(buf []byte) []byte {
	f.stream = true
	if f.phase == atBody {
		have := int64(len(buf) - f.pos)
		f.pos, f.body = len(buf), f.body-have
	}
	return f.part(buf).Raw
}

// Forget lets go of the arguments of the last request, which keep the buffer that they lie in.
func (f *Framer) Forget() { clear(f.args[:cap(f.args)]) }

// part takes what has been scanned of a streamed request out of the buffer.
func (f *Framer) part(buf []byte) Request {
	if !f.stream {
		return Request{}
	}
	raw := buf[:f.pos]
	f.seen = max(0, f.seen-f.pos)
	f.pos = 0
	return Request{Raw: raw}
}

func (f *Framer) finish(buf []byte) Request {
	req := Request{Raw: buf[:f.pos]}
	if !f.stream {
		req.Args = f.slices(buf, len(f.spans))
	}
	f.phase, f.pos, f.stream = atStart, 0, false
	if cap(f.spans) > maxIdleSpans {
		f.spans = nil
	}
	return req
}

// maxIdleSpans is how many argument positions are kept for the next request: a rare huge one must not stay in memory.
const maxIdleSpans = 1024

func (f *Framer) slices(buf []byte, n int) [][]byte {
	if cap(f.args) > maxIdleSpans && n <= maxIdleSpans {
		f.args = nil
	}
	f.args = f.args[:0]
	for _, s := range f.spans[:n] {
		f.args = append(f.args, buf[s.from:s.to])
	}
	return f.args
}

func (f *Framer) bulkHeader(buf []byte) (n int64, end int, err error) {
	cr, err := f.line(buf, f.pos, "too big bulk count string")
	if err != nil || cr < 0 {
		return 0, 0, err
	}
	if c := buf[f.pos]; c != '$' {
		return 0, 0, &ProtocolError{Reason: "expected '$', got '" + string([]byte{c}) + "'"}
	}
	n, valid := parseInt(buf[f.pos+1 : cr])
	if !valid || n < 0 || n > f.limits.Bulk {
		return 0, 0, &ProtocolError{Reason: "invalid bulk length"}
	}
	if n > maxStrangerBulk && f.unauthenticated && !f.stream {
		return 0, 0, &ProtocolError{"unauthenticated bulk length", true}
	}
	return n, cr + 2, nil
}

// number parses the header line at from; end is the offset behind its line end, or 0 while the line is incomplete.
func (f *Framer) number(buf []byte, from int, tooLong, invalid string, lo, hi int64) (n int64, end int, err error) {
	cr, err := f.line(buf, from, tooLong)
	if err != nil || cr < 0 {
		return 0, 0, err
	}
	n, valid := parseInt(buf[from+1 : cr])
	if !valid || n < lo || n > hi {
		return 0, 0, &ProtocolError{Reason: invalid}
	}
	return n, cr + 2, nil
}

// line returns the offset of the "\r" that ends the line at from, or -1 while it, or the byte behind it, has not come.
// Like Redis it takes the byte behind "\r" for "\n" unseen.
func (f *Framer) line(buf []byte, from int, tooLong string) (cr int, err error) {
	start := max(from, f.seen)
	i := bytes.IndexByte(buf[start:min(len(buf), from+f.limits.Inline+1)], '\r')
	if i < 0 {
		if len(buf)-from > f.limits.Inline {
			return 0, &ProtocolError{Reason: tooLong}
		}
		f.seen = len(buf)
		return -1, nil
	}
	f.seen = start + i
	if f.seen+1 >= len(buf) {
		return -1, nil
	}
	cr, f.seen = f.seen, 0
	return cr, nil
}

// parseInt reads a decimal as Redis's string2ll does: no plus sign, no leading zeros, no spaces, 64 bits.
func parseInt(b []byte) (n int64, ok bool) {
	if len(b) == 1 && b[0] >= '0' && b[0] <= '9' {
		return int64(b[0] - '0'), true
	}
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 || b[0] < '1' || b[0] > '9' {
		return 0, false
	}
	var u uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	if neg {
		return -int64(u), u <= 1<<63
	}
	return int64(u), u <= math.MaxInt64
}

// ParseInt reads a whole number as Redis does: a minus sign is allowed; plus signs, spaces and leading zeros are not.
func ParseInt(b []byte) (n int64, ok bool) { return parseInt(b) }
