package resp

// The fast path for requests and replies that are small, whole and ordinary: see the package
// comment.

// small frames a request that is whole in buf, with less than ten arguments of less than 10,000
// bytes each. It returns where the request ends, with its arguments in spans. 0 means that there is
// no such request.
func (f *Framer) small(buf []byte) (end int) {
	if len(buf) < 4 || buf[2] != '\r' || buf[3] != '\n' || buf[1] < '1' || buf[1] > '9' {
		return 0
	}
	argc := int(buf[1] - '0')
	if argc > f.limits.Args || f.seen > 0 {
		return 0
	}
	f.spans = f.spans[:0]
	at := 4
	for range argc {
		n, body := smallLength(buf, at, '$')
		if body == 0 || int64(n) > f.limits.Bulk || body+n+2 > len(buf) ||
			buf[body+n] != '\r' || buf[body+n+1] != '\n' {
			return 0
		}
		f.spans = append(f.spans, span{body, body + n})
		at = body + n + 2
	}
	f.argc = argc
	return at
}

// smallLength reads the header line at p[at:] of something of less than 10,000 bytes. It returns
// where the line ends, or 0 if there is no such line.
func smallLength(p []byte, at int, kind byte) (n, end int) {
	if at >= len(p) || p[at] != kind {
		return 0, 0
	}
	i := at + 1
	for ; i < len(p) && i < at+5 && p[i] >= '0' && p[i] <= '9'; i++ {
		n = 10*n + int(p[i]-'0')
	}
	digits := i - at - 1
	if digits == 0 || digits > 1 && p[at+1] == '0' || i+1 >= len(p) || p[i] != '\r' ||
		p[i+1] != '\n' {
		return 0, 0
	}
	return n, i + 2
}

// SmallReply returns the length of the reply at the front of p, if it is whole, small and says
// nothing about the connection's state. It is a bulk string, an integer, a null, or the status OK.
// Otherwise it returns 0.
func SmallReply(p []byte) (n int) {
	if len(p) < 4 {
		return 0
	}
	switch p[0] {
	case '$':
		if p[1] == '-' {
			return prefix(p, "$-1\r\n")
		}
		size, body := smallLength(p, 0, '$')
		if body == 0 || body+size+2 > len(p) {
			return 0
		}
		return body + size + 2
	case '+':
		return prefix(p, "+OK\r\n")
	case '_':
		return prefix(p, "_\r\n")
	case ':':
		return smallInteger(p)
	}
	return 0
}

// smallInteger returns the length of the integer reply at the front of p, or 0 if there is none
// that is whole.
func smallInteger(p []byte) (n int) {
	i := 1
	if p[1] == '-' {
		i = 2
	}
	for i < len(p) && p[i] >= '0' && p[i] <= '9' {
		i++
	}
	if i+1 >= len(p) || p[i-1] < '0' || p[i] != '\r' || p[i+1] != '\n' {
		return 0
	}
	return i + 2
}

// prefix returns len(text) if p begins with text, otherwise 0.
func prefix(p []byte, text string) int {
	if len(p) >= len(text) && string(p[:len(text)]) == text {
		return len(text)
	}
	return 0
}
