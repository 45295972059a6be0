package resp

import "strconv"

// Encoder appends a reply to Buf, in RESP version Proto (2 or 3). Version 2 has flat arrays for
// maps and sets. An aggregate is its length, followed by as many elements.
type Encoder struct {
	Proto int
	Buf   []byte
}

// Array appends the header of an array of n elements.
func (e *Encoder) Array(n int) { e.Buf = appendHeader(e.Buf, '*', int64(n)) }

// Set appends the header of a set of n elements.
func (e *Encoder) Set(n int) {
	if e.Proto == 3 {
		e.Buf = appendHeader(e.Buf, '~', int64(n))
		return
	}
	e.Array(n)
}

// Map appends the header of a map of n keys. Each key is followed by its value.
func (e *Encoder) Map(n int) {
	if e.Proto == 3 {
		e.Buf = appendHeader(e.Buf, '%', int64(n))
		return
	}
	e.Array(2 * n)
}

// Bulk appends a bulk string.
func (e *Encoder) Bulk(text string) {
	e.Buf = appendHeader(e.Buf, '$', int64(len(text)))
	e.Buf = append(append(e.Buf, text...), '\r', '\n')
}

// Status appends a status. text must have no line end.
func (e *Encoder) Status(text string) {
	e.Buf = append(append(append(e.Buf, '+'), text...), '\r', '\n')
}

// Int appends an integer.
func (e *Encoder) Int(n int) {
	e.Buf = append(strconv.AppendInt(append(e.Buf, ':'), int64(n), 10), '\r', '\n')
}

// Elements cuts an array, set, map or push, which must be all of raw, into its encoded elements.
// Those of a map are keys and values in turn.
func Elements(raw []byte) (kind byte, elems [][]byte, err error) {
	var whole Scanner
	n, done, err := whole.Scan(raw)
	if err != nil || !done || n != len(raw) {
		return 0, nil, errReply
	}
	kind = raw[0]
	if kind != '*' && kind != '~' && kind != '%' && kind != '>' {
		return kind, nil, errReply
	}
	for rest := raw[len(whole.Head().Line)+3:]; len(rest) > 0; {
		var one Scanner
		n, _, err := one.Scan(rest)
		if err != nil {
			return kind, nil, err
		}
		elems = append(elems, rest[:n])
		rest = rest[n:]
	}
	return kind, elems, nil
}

// AppendAggregate appends an aggregate of such elements: the reverse of Elements.
func AppendAggregate(dst []byte, kind byte, elems [][]byte) []byte {
	n := len(elems)
	if kind == '%' {
		n /= 2
	}
	dst = appendHeader(dst, kind, int64(n))
	for _, elem := range elems {
		dst = append(dst, elem...)
	}
	return dst
}
