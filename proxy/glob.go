package proxy

import "strings"

// matchGlob reports whether s matches pattern by the rules of Redis's KEYS: * ? [a-c] [^a] and \ before what is meant as it is.
func matchGlob(pattern, s string) bool {
	for pattern != "" {
		switch c := pattern[0]; {
		case c == '*':
			pattern = strings.TrimLeft(pattern, "*")
			for i := range len(s) + 1 {
				if matchGlob(pattern, s[i:]) {
					return true
				}
			}
			return false
		case s == "":
			return false
		case c == '[':
			matched, rest := matchClass(pattern[1:], s[0])
			if !matched {
				return false
			}
			pattern, s = rest, s[1:]
			continue
		case c == '\\' && len(pattern) > 1:
			pattern = pattern[1:]
			fallthrough
		case c != '?':
			if pattern[0] != s[0] {
				return false
			}
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}

// matchClass matches c with the class that begins pattern, behind its "["; rest is what follows the class. One without an
// end goes on to the end of the pattern.
func matchClass(pattern string, c byte) (matched bool, rest string) {
	not := strings.HasPrefix(pattern, "^")
	if not {
		pattern = pattern[1:]
	}
	for pattern != "" && pattern[0] != ']' {
		switch {
		case pattern[0] == '\\' && len(pattern) > 1:
			matched = matched || pattern[1] == c
			pattern = pattern[2:]
		case len(pattern) > 2 && pattern[1] == '-':
			lo, hi := min(pattern[0], pattern[2]), max(pattern[0], pattern[2])
			matched = matched || lo <= c && c <= hi
			pattern = pattern[3:]
		default:
			matched = matched || pattern[0] == c
			pattern = pattern[1:]
		}
	}
	if pattern != "" {
		pattern = pattern[1:]
	}
	return matched != not, pattern
}
