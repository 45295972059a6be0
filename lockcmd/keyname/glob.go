package keyname

// Match reports whether a name matches a pattern of KEYS and SCAN. Its time is at most
// proportional to the product of both lengths.
func Match(pattern, name string) bool {
	var backPattern, backName string // where to go on if the rest after the last * does not match
	starred := false
	for {
		if len(pattern) > 0 && pattern[0] == '*' {
			pattern = pattern[1:]
			backPattern, backName, starred = pattern, name, true
			continue
		}
		if len(name) == 0 {
			return len(pattern) == 0
		}
		if rest, ok := globByte(pattern, name[0]); ok {
			pattern, name = rest, name[1:]
			continue
		}
		if !starred || len(backName) == 0 {
			return false
		}
		backName = backName[1:]
		pattern, name = backPattern, backName
	}
}

// globByte matches one byte with the beginning of a pattern, not a *, and returns the rest.
func globByte(pattern string, b byte) (rest string, ok bool) {
	switch {
	case pattern == "":
		return "", false
	case pattern[0] == '?':
		return pattern[1:], true
	case pattern[0] == '[':
		return globClass(pattern[1:], b)
	case pattern[0] == '\\' && len(pattern) > 1:
		pattern = pattern[1:]
	}
	return pattern[1:], pattern[0] == b
}

// globClass matches one byte with a class, after its [. A class that is not closed ends with the
// pattern.
func globClass(pattern string, b byte) (rest string, ok bool) {
	not := pattern != "" && pattern[0] == '^'
	if not {
		pattern = pattern[1:]
	}
	found := false
	for pattern != "" && pattern[0] != ']' {
		switch {
		case pattern[0] == '\\' && len(pattern) > 1:
			found = found || pattern[1] == b
			pattern = pattern[2:]
		case len(pattern) > 2 && pattern[1] == '-':
			lo, hi := min(pattern[0], pattern[2]), max(pattern[0], pattern[2])
			found = found || lo <= b && b <= hi
			pattern = pattern[3:]
		default:
			found = found || pattern[0] == b
			pattern = pattern[1:]
		}
	}
	if pattern != "" {
		pattern = pattern[1:]
	}
	return pattern, found != not
}
