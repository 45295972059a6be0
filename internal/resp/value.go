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

// IsNull reports whether v is a null of either protocol version.
func (v Value) IsNull() bool { return v.Type == '_' }

// IsError reports whether v is an error reply.
func (v Value) IsError() bool { return v.Type == '-' || v.Type == '!' }

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
			return Value{Type: '_'}, rest, nil
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
			return Value{Type: '_'}, rest, nil
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
