package resp

import (
	"bytes"
	"fmt"
)

// Value is a whole reply, decoded. The elements of a map are its keys and values in turn.
type Value struct {
	Type  byte    // the type byte as sent; '_' for every kind of null
	Int   int64   // of ':'
	Text  []byte  // of '$', '+', '-' and the other textual types; an error's code is its first word
	Elems []Value // of '*', '%', '~' and '>'
}

// Null is null, which each protocol version has in its own form.
var Null = Value{Type: '_'}

func Int[N int | int64](n N) Value { return Value{Type: ':', Int: int64(n)} }
func Bulk(text string) Value       { return Value{Type: '$', Text: []byte(text)} }
func Status(text string) Value     { return Value{Type: '+', Text: []byte(text)} }
func Array(elems ...Value) Value   { return Value{Type: '*', Elems: elems} }

// Text is null for an empty text.
func Text(text string) Value {
	if text == "" {
		return Null
	}
	return Bulk(text)
}

// Map is a map of names and Values in turn.
func Map(fields ...any) Value {
	m := Value{Type: '%'}
	for i := 0; i < len(fields); i += 2 {
		m.Elems = append(m.Elems, Bulk(fields[i].(string)), fields[i+1].(Value))
	}
	return m
}

// IsNull reports whether v is a null of either protocol version.
func (v Value) IsNull() bool { return v.Type == '_' }

// IsError reports whether v is an error reply.
func (v Value) IsError() bool { return v.Type == '-' || v.Type == '!' }

// AppendValue appends a reply in RESP version proto. All but version 3 have flat arrays for maps
// and sets.
func AppendValue(dst []byte, v Value, proto int) []byte {
	kind, n := v.Type, len(v.Elems)
	switch {
	case v.IsNull() && proto == 3:
		return append(dst, "_\r\n"...)
	case v.IsNull():
		return append(dst, "$-1\r\n"...)
	case v.IsError():
		return AppendError(dst, string(v.Text))
	case kind == ':':
		return appendHeader(dst, ':', v.Int)
	case kind == '+':
		return append(append(append(dst, '+'), v.Text...), "\r\n"...)
	case (kind == '%' || kind == '~') && proto != 3:
		kind = '*'
	case kind == '%':
		n /= 2
	case kind != '*' && kind != '~' && kind != '>':
		dst = appendHeader(dst, '$', int64(len(v.Text)))
		return append(append(dst, v.Text...), "\r\n"...)
	}
	dst = appendHeader(dst, kind, int64(n))
	for _, elem := range v.Elems {
		dst = AppendValue(dst, elem, proto)
	}
	return dst
}

// maxValueDepth bounds the recursion of ParseValue; lock scripts answer with depth two.
const maxValueDepth = 32

// ParseValue decodes a whole reply, which must be all of raw. Text is a part of raw.
func ParseValue(raw []byte) (Value, error) {
	v, rest, err := parseValue(raw, 0)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes behind it", errReply, len(rest))
	}
	return v, err
}

func parseValue(raw []byte, depth int) (v Value, rest []byte, err error) {
	nl := bytes.IndexByte(raw, '\n')
	if nl < 1 || depth > maxValueDepth {
		return v, nil, fmt.Errorf("%w: cut short or nested too deep", errReply)
	}
	line, rest := bytes.TrimRight(raw[1:nl], "\r"), raw[nl+1:]
	v.Type = raw[0]
	switch v.Type {
	case '+', '-', '(', ',', '#':
		v.Text = line
		return v, rest, nil
	case '_':
		return v, rest, nil
	}
	n, ok := ParseInt(line)
	if !ok || v.Type != ':' && n > maxLength {
		return v, nil, fmt.Errorf("%w: number in %q", errReply, line)
	}
	switch v.Type {
	case ':':
		v.Int = n
		return v, rest, nil
	case '$', '=', '!':
		if n < 0 {
			return Null, rest, nil
		}
		if int64(len(rest)) < n+2 {
			return v, nil, fmt.Errorf("%w: bulk cut short", errReply)
		}
		v.Text = rest[:n]
		return v, rest[n+2:], nil
	case '%':
		n *= 2
	case '*', '~', '>':
		if n < 0 {
			return Null, rest, nil
		}
	default:
		return v, nil, fmt.Errorf("%w: type byte %q", errReply, v.Type)
	}
	for ; n > 0; n-- {
		var elem Value
		if elem, rest, err = parseValue(rest, depth+1); err != nil {
			return v, nil, err
		}
		v.Elems = append(v.Elems, elem)
	}
	return v, rest, nil
}
