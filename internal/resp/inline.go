package resp

import "bytes"

// inline frames a request that is a line of words. A line that contains a NUL never ends, as in
// Redis, which searches the line end with a C string function. It is refused when it gets too long.
func (f *Framer) inline(buf []byte) (Request, bool, error) {
	i := bytes.IndexAny(buf[f.seen:min(len(buf), f.limits.Inline+1)], "\n\x00")
	if i < 0 || buf[f.seen+i] == 0 {
		if len(buf) > f.limits.Inline {
			return Request{}, false, &ProtocolError{Reason: "too big inline request"}
		}
		if i >= 0 && isHandshake(buf) {
			return Request{}, false, &ProtocolError{TLS: true, Reason: "this port does not speak TLS"}
		}
		if i >= 0 {
			f.seen += i // stay at the NUL
		} else {
			f.seen = len(buf)
		}
		return Request{}, false, nil
	}
	nl := f.seen + i
	f.seen = 0
	line := buf[:nl]
	if nl > 0 && line[nl-1] == '\r' {
		line = line[:nl-1]
	}
	args, ok := splitWords(line)
	if !ok {
		return Request{}, false, &ProtocolError{Reason: "unbalanced quotes in request"}
	}
	return Request{Raw: buf[:nl+1], Args: args, Inline: true}, true, nil
}

// isHandshake reports whether a line that never ends begins as a client's first message of TLS does: a
// record of the handshake, of version 3.0 to 3.4.
func isHandshake(line []byte) bool {
	return len(line) > 2 && line[0] == 0x16 && line[1] == 3 && line[2] <= 4
}

// splitWords cuts a line into words by the rules of Redis's inline commands and configuration files
// (sdssplitargs). ok is false when the quotes don't balance.
//
//   - Blanks separate words. Vertical tab and form feed do so only between words:
//     inside an unquoted word they belong to it.
//   - "…" knows \n \r \t \b \a \xHH, and \ in front of any other byte.
//   - '…' knows only \'.
//   - A closing quote must be followed by a blank or the end.
func splitWords(line []byte) (words [][]byte, ok bool) {
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return words, true
		}
		word := []byte{}
		for closed := false; i < len(line) && !closed && !endsWord(line[i]); {
			switch c := line[i]; c {
			case '"':
				word, i, closed = doubleQuoted(word, line, i+1)
			case '\'':
				word, i, closed = singleQuoted(word, line, i+1)
			default:
				word = append(word, c)
				i++
				continue
			}
			if !closed || i < len(line) && !isSpace(line[i]) {
				return nil, false
			}
		}
		words = append(words, word)
	}
}

func doubleQuoted(word, line []byte, i int) ([]byte, int, bool) {
	for ; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			return word, i + 1, true
		case c == '\\' && i+3 < len(line) && line[i+1] == 'x' && isHex(line[i+2]) &&
			isHex(line[i+3]):
			word = append(word, unhex(line[i+2])<<4|unhex(line[i+3]))
			i += 3
		case c == '\\' && i+1 < len(line):
			i++
			word = append(word, unescape(line[i]))
		default:
			word = append(word, c)
		}
	}
	return word, i, false
}

func singleQuoted(word, line []byte, i int) ([]byte, int, bool) {
	for ; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			return word, i + 1, true
		case c == '\\' && i+1 < len(line) && line[i+1] == '\'':
			i++
			word = append(word, '\'')
		default:
			word = append(word, c)
		}
	}
	return word, i, false
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

func endsWord(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}
