package resp

import (
	"bytes"
	"math"
	"unsafe"
)

// Redis's own limits (server.h, networking.c), which apply for zero Limits.
const (
	MaxInlineLen = 64 << 10      // bytes of an inline command, and of any header line
	MaxBulkLen   = 512 << 20     // proto-max-bulk-len's default, bytes
	MaxArgCount  = math.MaxInt32 // arguments of one request

	// of a client that must log in first
	maxStrangerArgs = 10
	maxStrangerBulk = 16 << 10 // bytes
)

// Limits bounds what a client can announce. A zero field means Redis's own limit.
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

// ProtocolError means that Redis would answer "ERR Protocol error: …" and close the connection.
type ProtocolError struct {
	Reason string
	// Unauthenticated says that the limit applies only to clients that have to log in first. For
	// another client, tell the Framer and call Next again.
	Unauthenticated bool
	// TLS says that the client has begun a TLS handshake, to which Redis gives no answer.
	TLS bool
}

func (e *ProtocolError) Error() string { return "Protocol error: " + e.Reason }

// Request is one request, or a piece of a streamed one.
type Request struct {
	Raw []byte // as the client sent it; a part of the caller's buffer
	// name and arguments, valid until the next call of Next; nil for a streamed request
	Args   [][]byte
	Inline bool // sent as a line, not as an array
	// Loose says that something other than CRLF ends a line or an argument. Redis takes any two
	// bytes there. Valkey as of 9.1 answers with an error and closes the connection.
	Loose bool
}

type span struct{ from, to int }

type framerPhase uint8

const (
	atStart  framerPhase = iota // in front of the request
	atHeader                    // in front of the "$" line of an argument
	atBody                      // within an argument
)

// Framer splits the bytes from one client into requests. Make it with NewFramer. Not safe for
// concurrent use.
type Framer struct {
	limits          Limits
	phase           framerPhase
	pos             int   // bytes of this request in the caller's buffer that have been scanned
	seen            int   // where the search for the end of the current line goes on; 0 for its start
	left            int   // arguments not yet complete
	argc            int   // arguments announced
	body            int64 // missing bytes of the current argument and its CRLF
	stream          bool  // the request is streamed: the caller has relayed its beginning
	loose           bool  // see Request.Loose
	unauthenticated bool  // see Unauthenticated
	spans           []span
	args            [][]byte
}

// NewFramer returns a Framer at the start of a stream.
func NewFramer(limits Limits) *Framer { return &Framer{limits: limits.withDefaults()} }

// Unauthenticated says whether the client has to log in before it can do anything else. Redis then
// allows it ten arguments of 16 KB each: see ProtocolError. The limits do not apply to the rest of
// a streamed request, which Redis judges.
func (f *Framer) Unauthenticated(yes bool) { f.unauthenticated = yes }

// Next returns the request at the front of buf, which must begin behind the previous request. If ok
// is false, the request is incomplete: call Next again with the same bytes and more. The caller
// should ignore a request without Args ("*0", an empty line), as Redis does.
//
// While a request is streamed (see Stream), Next returns its further bytes in Raw, and true with
// the last of them. An error is always a *ProtocolError. It is final, unless it is Unauthenticated.
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
			n, end, err := f.arrayHeader(buf)
			if err != nil || end == 0 {
				return Request{}, false, err
			}
			if n <= 0 {
				f.loose = false
				return Request{Raw: buf[:end]}, true, nil
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
			f.loose = f.loose || f.pos >= 2 && string(buf[f.pos-2:f.pos]) != "\r\n"
			f.phase = atHeader
			if f.left--; f.left == 0 {
				return f.finish(buf), true, nil
			}
		}
	}
}

// Head returns the whole arguments of the incomplete request in buf, the first most of them, and
// how many it will have. These suffice to route a request that is too large to keep.
func (f *Framer) Head(buf []byte, most int) (args [][]byte, argc int) {
	if f.phase == atStart || f.stream {
		return nil, 0
	}
	whole := len(f.spans)
	if f.phase == atBody {
		whole--
	}
	return f.slices(buf, min(whole, most)), f.argc
}

// Stream returns the scanned part of the incomplete request in buf. The caller can relay it and
// forget it: from now on Next returns the request in pieces. The next buffer must begin behind that
// part. Bytes that have come since Next saw buf may follow in it, and may be other requests.
func (f *Framer) Stream(buf []byte) []byte {
	f.stream = true
	if f.phase == atBody {
		have := min(int64(len(buf)-f.pos), f.body)
		f.pos, f.body = f.pos+int(have), f.body-have
	}
	return f.part(buf).Raw
}

// Forget drops the arguments of the last request: they keep the caller's buffer in memory, and room
// for many arguments.
func (f *Framer) Forget() {
	if cap(f.args) > maxIdleSpans {
		f.args = nil
	}
	clear(f.args[:cap(f.args)])
}

// Held is how many bytes of memory the Framer has for the arguments of an incomplete request.
func (f *Framer) Held() int {
	if f.phase == atStart {
		return 0
	}
	return cap(f.spans) * int(unsafe.Sizeof(span{}))
}

// part returns the scanned part of a streamed request.
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
	req := Request{Raw: buf[:f.pos], Loose: f.loose}
	if !f.stream {
		req.Args = f.slices(buf, len(f.spans))
	}
	f.phase, f.pos, f.stream, f.loose = atStart, 0, false, false
	if cap(f.spans) > maxIdleSpans {
		f.spans = nil
	}
	return req
}

// maxIdleSpans is for how many arguments memory is kept for the next request.
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

// arrayHeader reads how many arguments the request at the front of buf has. end is the offset
// behind that line, 0 while it is incomplete.
func (f *Framer) arrayHeader(buf []byte) (n int64, end int, err error) {
	cr, err := f.line(buf, 0, "too big mbulk count string")
	if err != nil || cr < 0 {
		return 0, 0, err
	}
	n, valid := ParseInt(buf[1:cr])
	if !valid || n > int64(f.limits.Args) {
		return 0, 0, &ProtocolError{Reason: "invalid multibulk length"}
	}
	if n > maxStrangerArgs && f.unauthenticated {
		return 0, 0, &ProtocolError{Reason: "unauthenticated multibulk length",
			Unauthenticated: true}
	}
	return n, cr + 2, nil
}

// bulkHeader reads the length of the argument at pos, as arrayHeader does.
func (f *Framer) bulkHeader(buf []byte) (n int64, end int, err error) {
	cr, err := f.line(buf, f.pos, "too big bulk count string")
	if err != nil || cr < 0 {
		return 0, 0, err
	}
	if c := buf[f.pos]; c != '$' {
		return 0, 0, &ProtocolError{Reason: "expected '$', got '" + string([]byte{c}) + "'"}
	}
	n, valid := ParseInt(buf[f.pos+1 : cr])
	if !valid || n < 0 || n > f.limits.Bulk {
		return 0, 0, &ProtocolError{Reason: "invalid bulk length"}
	}
	if n > maxStrangerBulk && f.unauthenticated && !f.stream {
		return 0, 0, &ProtocolError{Reason: "unauthenticated bulk length",
			Unauthenticated: true}
	}
	return n, cr + 2, nil
}

// line returns the offset of the "\r" that ends the line at from, or -1 while that or the next byte
// is missing. Like Redis, it does not check that the next byte is "\n".
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
	f.loose = f.loose || buf[cr+1] != '\n'
	return cr, nil
}

// ParseInt reads a decimal number of 64 bits as Redis's string2ll does: without plus sign, leading
// zeros and spaces.
func ParseInt(b []byte) (n int64, ok bool) {
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
