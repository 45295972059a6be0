package keyname

import (
	"regexp"
	"strings"
)

// Shape is a key with a star for each number, hex string and UUID in it, so that keys that differ
// only there have the same shape: order:17 is order:*. Its claim's is order:*:once:*, whose end
// differs with the slot.
func Shape(key string) string {
	if made, ok := MadeBy(key); ok {
		return Shape(made) + ClaimInfix + "*"
	}
	var b strings.Builder
	for len(key) > 0 {
		n := 0
		for n < len(key) && isWordByte(key[n]) {
			n++
		}
		switch {
		case n == 0:
			b.WriteByte(key[0])
			n = 1
		case n == minHex && uuid.MatchString(key):
			b.WriteByte('*')
			n = len("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
		default:
			writeWordShape(&b, key[:n])
		}
		key = key[n:]
	}
	return b.String()
}

var uuid = regexp.MustCompile(`^[[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}` +
	`([^[:alnum:]]|$)`)

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

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHexByte(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func isWordByte(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
