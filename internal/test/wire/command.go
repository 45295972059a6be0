package wire

import (
	"bufio"
	"fmt"
	"strconv"
)

// Append adds a command to out, as clients send it.
func Append(out []byte, words ...string) []byte {
	out = fmt.Appendf(out, "*%d\r\n", len(words))
	for _, word := range words {
		out = append(out, '$')
		out = strconv.AppendInt(out, int64(len(word)), 10)
		out = append(out, "\r\n"...)
		out = append(out, word...)
		out = append(out, "\r\n"...)
	}
	return out
}

// Bulk is a bulk string as it is on the wire.
func Bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// ReadCommand reads one command, as a server does that plays Redis.
func ReadCommand(in *bufio.Reader) (words []string, err error) {
	v, err := ReadValue(in, RESP2)
	if err != nil {
		return nil, err
	}
	for _, word := range v.Elems {
		if word.Type != '$' {
			return nil, fmt.Errorf("%w: no command: %v", ErrMalformed, v)
		}
		words = append(words, word.Text)
	}
	if v.Type != '*' || len(words) == 0 {
		return nil, fmt.Errorf("%w: no command: %v", ErrMalformed, v)
	}
	return words, nil
}
