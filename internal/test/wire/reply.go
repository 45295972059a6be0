package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Protocol is a version of the protocol.
type Protocol int

// A client that has asked for RESP3 reads Either until it knows what it was answered. PushesWithin is
// Either for what a server itself says: Redis up to 7.0 puts a push into the array of the command
// that it is running. There it counts as an element, so that the array seems to end early.
const (
	Either Protocol = iota
	RESP2
	RESP3
	PushesWithin
)

// ErrMalformed is wrapped by every error about bytes that Redis does not send.
var ErrMalformed = errors.New("not a reply")

// Value is a whole reply, decoded. The elements of a map are its keys and values in turn. An
// attribute in front of a value is left out.
type Value struct {
	Type  byte   // the type byte as sent; '_' for every kind of null
	Int   int64  // of ':'
	Text  string // of all types that are neither numbers nor have elements
	Elems []Value
}

// IsNull reports whether v is a null of either protocol version.
func (v Value) IsNull() bool { return v.Type == '_' }

// IsError reports whether v is an error reply.
func (v Value) IsError() bool { return v.Type == '-' || v.Type == '!' }

// String is for comparing and showing.
func (v Value) String() string {
	switch v.Type {
	case ':':
		return ":" + strconv.FormatInt(v.Int, 10)
	case '_':
		return "null"
	case '-', '!':
		return "-" + v.Text
	case '*', '~', '%', '>':
		parts := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			parts[i] = e.String()
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return v.Text
}

// ReadReply reads one reply, or one push, and returns it as it was sent. With an error it returns
// what was read of it.
func ReadReply(in *bufio.Reader, p Protocol) (raw string, err error) {
	r := reader{in: in, protocol: p}
	_, err = r.value(0)
	return r.raw.String(), err
}

// ReadValue is ReadReply, decoded.
func ReadValue(in *bufio.Reader, p Protocol) (Value, error) {
	r := reader{in: in, protocol: p}
	return r.value(0)
}

// Parse decodes one reply, which must be all of raw.
func Parse(raw string) (Value, error) {
	in := bufio.NewReader(strings.NewReader(raw))
	v, err := ReadValue(in, Either)
	if err == nil {
		if _, more := in.Peek(1); more == nil {
			err = fmt.Errorf("%w: there is more behind it: %.200q", ErrMalformed, raw)
		}
	}
	return v, err
}

// reader reads one reply.
type reader struct {
	in       *bufio.Reader
	protocol Protocol
	raw      strings.Builder
}

// maxDepth is deeper than Redis nests replies.
const maxDepth = 1000

// types are the type bytes of each version. Those of RESP2 belong to RESP3 as well.
const (
	types2 = "+-:$*"
	types3 = "_,#!=(%~>|"
)

var (
	number = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	double = regexp.MustCompile(`^(-?inf|-?nan|-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?)$`)
)

func (r *reader) value(depth int) (v Value, err error) {
	kind, text, err := r.line()
	if err != nil {
		return v, err
	}
	wrong := func(what string) (Value, error) {
		return v, fmt.Errorf("%w: %s: %q", ErrMalformed, what, string(kind)+text)
	}
	v.Type = kind
	switch {
	case !strings.Contains(types2+types3, string(kind)):
		return wrong("no type begins like this")
	case r.protocol == RESP2 && !strings.Contains(types2, string(kind)):
		return wrong("RESP2 has no such type")
	case depth > maxDepth:
		return wrong("it is nested too deep")
	}
	switch kind {
	case '+', '-':
		v.Text = text
		return v, nil
	case '_':
		if text != "" {
			return wrong("a null has no text")
		}
		return v, nil
	case '#':
		if v.Text = text; text != "t" && text != "f" {
			return wrong("a boolean is t or f")
		}
		return v, nil
	case ',':
		if v.Text = text; !double.MatchString(text) {
			return wrong("not a double")
		}
		return v, nil
	}
	if !number.MatchString(text) {
		return wrong("not a number")
	}
	if v.Text = text; kind == '(' {
		return v, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return wrong("the number is too large")
	}
	v.Text = ""
	switch {
	case kind == ':':
		v.Int = n
		return v, nil
	case n == -1 && (kind == '$' || kind == '*'):
		if v.Type = '_'; r.protocol == RESP3 {
			return wrong("a null of RESP2")
		}
		return v, nil
	case n < 0:
		return wrong("a negative length")
	}
	switch kind {
	case '$', '!', '=':
		v.Text, err = r.body(n)
		if err == nil && kind == '=' && (n < 4 || v.Text[3] != ':') {
			return wrong("a verbatim string begins with its format")
		}
		return v, err
	case '>':
		if depth > 0 && r.protocol != PushesWithin {
			return wrong("a push within a reply")
		}
	case '%', '|':
		n *= 2
	}
	for range n {
		elem, err := r.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.Elems = append(v.Elems, elem)
	}
	switch {
	case kind == '|':
		return r.value(depth)
	case kind == '>' && (n == 0 || v.Elems[0].Type != '$' && v.Elems[0].Type != '+'):
		return wrong("a push begins with its kind")
	}
	return v, nil
}

// line reads a type byte and the text behind it.
func (r *reader) line() (kind byte, text string, err error) {
	line, err := r.in.ReadString('\n')
	r.raw.WriteString(line)
	if err != nil {
		return 0, "", err
	}
	text, ended := strings.CutSuffix(line, "\r\n")
	if !ended || text == "" || strings.Contains(text, "\r") {
		return 0, "", fmt.Errorf("%w: the line is %.200q", ErrMalformed, line)
	}
	return text[0], text[1:], nil
}

// body reads a string of n bytes and its end.
func (r *reader) body(n int64) (string, error) {
	begin := r.raw.Len()
	if _, err := io.CopyN(&r.raw, r.in, n+2); err != nil {
		return "", err
	}
	text, ended := strings.CutSuffix(r.raw.String()[begin:], "\r\n")
	if !ended {
		return "", fmt.Errorf("%w: a string of %d bytes does not end: %.200q", ErrMalformed, n, text)
	}
	return text, nil
}

// Elements are the elements of a reply, or its keys and values in turn, each as it was sent.
func Elements(raw string) (kind byte, elems []string, err error) {
	v, err := Parse(raw)
	if err != nil || len(raw) == 0 {
		return 0, nil, err
	}
	in := bufio.NewReader(strings.NewReader(raw[strings.Index(raw, "\n")+1:]))
	for range v.Elems {
		elem, err := ReadReply(in, Either)
		if err != nil {
			return 0, nil, err
		}
		elems = append(elems, elem)
	}
	return v.Type, elems, nil
}
