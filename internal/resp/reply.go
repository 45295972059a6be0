package resp

import (
	"bytes"
	"errors"
	"fmt"
)

// Head is what a Scanner keeps of a reply: enough to tell "+OK" from "-ERR", and a subscription's
// confirmation from a message. Its slices are valid until the Scanner begins the next reply.
type Head struct {
	Type byte   // the type byte of the reply, not of an attribute before it
	Line []byte // the first line without type byte and CRLF, at most maxHead bytes
	Elem []byte // the first element of an array or push if it is a bulk, at most maxHead bytes
	Last int64  // the last integer among the elements of an array or push; 0 if there is none
	// Errors are the indexes, from 0, of the elements that are errors. In EXEC's reply these are
	// the commands that failed. ManyErrors says that there are more than maxErrors.
	Errors     []int
	ManyErrors bool
	// PushWithin says that ScanWithPushes has found a push within the reply.
	PushWithin bool
}

// maxErrors bounds Head.Errors.
const maxErrors = 1024

// IsOK reports whether the reply is the status "OK".
func (h Head) IsOK() bool { return h.Type == '+' && string(h.Line) == "OK" }

// IsError reports whether the reply is an error of either protocol version.
func (h Head) IsError() bool { return h.Type == '-' || h.Type == '!' }

const (
	maxHead   = 64
	maxDepth  = 1 << 16 // open aggregates; Redis itself stays far below
	maxLength = 1 << 61 // of a bulk or aggregate: beyond any real one, and its double fits an int64
)

// errReply is wrapped by every error about bytes that are no Redis reply.
var errReply = errors.New("not a Redis reply")

// ErrPushWithin says that there is a push within a reply. Redis up to 7.0 puts one into the array
// of the command that it is running, whose length does not count it. It is a message that a
// transaction sends to its own client, or the invalidation of a key that an MGET finds expired. The
// end of such a reply is unknown, and so is the request that the bytes behind it answer.
var ErrPushWithin = errors.New("the upstream has put a message into a reply, whose end is unknown")

type aggregate struct {
	left      int64
	attribute bool // its end doesn't complete an element: the value it describes follows
}

// Scanner splits the bytes from one upstream connection into replies. Its zero value is at the
// start of the stream. Not safe for concurrent use.
type Scanner struct {
	// MaxLine bounds a line that has not ended, bytes; 0 is no bound. Redis has none: a script's
	// status or error reply is a line of any length.
	MaxLine int

	lineLen int // bytes of the current line in earlier calls of Scan
	open    []aggregate
	body    int64 // bytes of a bulk and its CRLF still to come
	line    []byte
	began   bool // a byte of the current reply has been seen
	inElem  bool // the current bulk is the first element of the reply
	elems   int  // elements begun at depth one
	head    Head
	lineBuf [maxHead]byte
	headBuf [maxHead]byte
	elemBuf [maxHead]byte
}

// Began reports whether the Scanner is within a reply.
func (s *Scanner) Began() bool { return s.began }

// Head describes the reply that Scan last completed, or is within.
func (s *Scanner) Head() Head { return s.head }

const (
	minElem  = 3 // bytes of the shortest reply or element: "_\r\n"
	maxLeast = 1 << 30
)

// Least returns the least number of bytes that the current reply, or between two replies the next
// one, still needs; at most maxLeast.
func (s *Scanner) Least() int {
	least := int64(minElem)
	switch {
	case s.body > 0:
		least = min(s.body, maxLeast)
	case len(s.line) > 0:
		least = 1
	}
	for _, a := range s.open { // least has counted the element that each of them is in
		least += minElem * (min(a.left, maxLeast) - 1)
	}
	return int(min(least, maxLeast))
}

// Scan returns how many bytes at the front of p belong to the current reply, and whether the reply
// ends there. If it does not, n is len(p). An error means that nothing that follows can be told
// apart: the upstream does not speak the Redis protocol, or it is ErrPushWithin. It is final.
func (s *Scanner) Scan(p []byte) (n int, done bool, err error) { return s.scan(p, false) }

// ScanWithPushes is Scan for a reader that need not know what the following bytes answer. It counts
// a push within a reply as an element. So the reply seems to end early, and its last elements seem
// to be replies.
func (s *Scanner) ScanWithPushes(p []byte) (n int, done bool, err error) { return s.scan(p, true) }

func (s *Scanner) scan(p []byte, pushes bool) (n int, done bool, err error) {
	if !s.began && len(p) > 0 {
		s.began, s.elems = true, 0
		s.head = Head{Type: p[0]}
	}
	if s.head.PushWithin && !pushes {
		return 0, false, ErrPushWithin
	}
	for n < len(p) {
		if s.body > 0 {
			n += s.scanBody(p[n:])
			if s.body == 0 && s.completed() {
				return n, true, nil
			}
			continue
		}
		nl := bytes.IndexByte(p[n:], '\n')
		if nl < 0 {
			s.saveLine(p[n:])
			s.lineLen += len(p) - n
			if s.MaxLine > 0 && s.lineLen > s.MaxLine {
				return len(p), false, fmt.Errorf("%w: a line longer than %d bytes", errReply,
					s.MaxLine)
			}
			return len(p), false, nil
		}
		s.lineLen = 0
		line := p[n : n+nl+1]
		n += nl + 1
		if len(s.line) > 0 {
			s.saveLine(line)
			line = s.line
		}
		done, err := s.header(line, pushes)
		s.line = s.line[:0]
		if done || err != nil {
			return n, done, err
		}
	}
	return n, false, nil
}

func (s *Scanner) scanBody(p []byte) int {
	n := int(min(s.body, int64(len(p))))
	if s.inElem {
		text := p[:max(0, min(int64(n), s.body-2))]
		room := maxHead - len(s.head.Elem)
		s.head.Elem = append(s.head.Elem, text[:min(len(text), room)]...)
	}
	s.body -= int64(n)
	if s.body == 0 {
		s.inElem = false
	}
	return n
}

// saveLine saves the beginning of a line that continues in the next call of Scan. Only the type and
// a number matter later, so it keeps no more than lineBuf has room for.
func (s *Scanner) saveLine(part []byte) {
	if s.line == nil {
		s.line = s.lineBuf[:0]
	}
	room := maxHead - len(s.line)
	s.line = append(s.line, part[:min(len(part), room)]...)
}

// header reads one whole line and reports whether the reply ends with it.
func (s *Scanner) header(line []byte, pushes bool) (done bool, err error) {
	line = line[:min(len(line), maxHead)] // as saveLine does: where reads end must not matter
	kind := line[0]
	text := bytes.TrimRight(line[1:], "\r\n")
	depth := len(s.open)
	if depth == 0 && s.head.Line == nil {
		s.head.Type = kind
		s.head.Line = append(s.headBuf[:0], text...)
	}
	ofReply := depth == 1 && !s.open[0].attribute // an element of the reply itself
	if ofReply && kind != '|' {
		s.elems++
	}
	if ofReply && (kind == '-' || kind == '!') {
		s.failedElem()
	}
	if depth > 0 && kind == '>' {
		if s.head.PushWithin = true; !pushes {
			return false, ErrPushWithin
		}
	}
	switch kind {
	case '+', '-', '(', ',', '#', '_':
		return s.completed(), nil
	case ':':
		if ofReply {
			s.head.Last, _ = ParseInt(text)
		}
		return s.completed(), nil
	}
	n, ok := ParseInt(text)
	if !ok || n < -1 || n > maxLength {
		return false, fmt.Errorf("%w: length in %q", errReply, line)
	}
	switch kind {
	case '$', '=', '!':
		if n < 0 {
			return s.completed(), nil
		}
		s.body = n + 2
		if ofReply && s.elems == 1 {
			s.inElem = true
			s.head.Elem = s.elemBuf[:0]
		}
		return false, nil
	case '*', '~', '>':
		return s.begin(n, false)
	case '%':
		return s.begin(2*n, false)
	case '|':
		if depth == 0 {
			s.head.Line = nil // the reply's own first line is still to come
		}
		return s.begin(2*n, true)
	}
	return false, fmt.Errorf("%w: type byte %q", errReply, kind)
}

// failedElem records that the current element of the reply is an error.
func (s *Scanner) failedElem() {
	if len(s.head.Errors) == maxErrors {
		s.head.ManyErrors = true
		return
	}
	s.head.Errors = append(s.head.Errors, s.elems-1)
}

// begin begins an aggregate of n elements. With n <= 0 it also ends there.
func (s *Scanner) begin(n int64, attribute bool) (done bool, err error) {
	if n <= 0 {
		return !attribute && s.completed(), nil
	}
	if len(s.open) == maxDepth {
		return false, fmt.Errorf("%w: nested deeper than %d", errReply, maxDepth)
	}
	s.open = append(s.open, aggregate{n, attribute})
	return false, nil
}

// completed counts a complete element and reports whether it was the last of the reply.
func (s *Scanner) completed() bool {
	for len(s.open) > 0 {
		top := &s.open[len(s.open)-1]
		if top.left--; top.left > 0 {
			return false
		}
		attribute := top.attribute
		s.open = s.open[:len(s.open)-1]
		if attribute {
			return false
		}
	}
	s.began = false
	return true
}
