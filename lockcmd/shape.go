package lockcmd

import "strings"

// ShapeOf is a key with a star for each number, hex string and UUID in it, so that keys that differ
// only there have the same shape: order:17 is order:*.
func ShapeOf(key string) string {
	var b strings.Builder
	for i := 0; i < len(key); {
		if n := uuidLength(key[i:]); n > 0 && (i == 0 || !isWordByte(key[i-1])) {
			b.WriteByte('*')
			i += n
			continue
		}
		end := i
		for end < len(key) && isWordByte(key[end]) {
			end++
		}
		if end == i {
			b.WriteByte(key[i])
			i++
			continue
		}
		writeWordShape(&b, key[i:end])
		i = end
	}
	return b.String()
}

// minHex is the shortest hex string that is not taken for a word.
const minHex = 8

func writeWordShape(b *strings.Builder, word string) {
	hex, digits := true, false
	for i := range len(word) {
		hex = hex && isHexByte(word[i])
		digits = digits || isDigit(word[i])
	}
	if hex && digits && len(word) >= minHex {
		b.WriteByte('*')
		return
	}
	for i := range len(word) {
		switch {
		case !isDigit(word[i]):
			b.WriteByte(word[i])
		case i == 0 || !isDigit(word[i-1]):
			b.WriteByte('*')
		}
	}
}

// uuidLength is the length of the UUID at the front of s, 0 if there is none.
func uuidLength(s string) int {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(s) < len(form) || len(s) > len(form) && isWordByte(s[len(form)]) {
		return 0
	}
	for i := range len(form) {
		if form[i] == '-' && s[i] != '-' || form[i] == 'x' && !isHexByte(s[i]) {
			return 0
		}
	}
	return len(form)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHexByte(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func isWordByte(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
