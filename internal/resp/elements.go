package resp

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
