package resp

import (
	"slices"
	"strconv"
)

// maxHeader bounds a header line and the line end of its argument, bytes.
const maxHeader = 24

// AppendCommand appends a request to dst: args as an array of bulk strings.
func AppendCommand[T string | []byte](dst []byte, args ...T) []byte {
	size := maxHeader
	for _, arg := range args {
		size += maxHeader + len(arg)
	}
	dst = slices.Grow(dst, size)
	dst = appendHeader(dst, '*', int64(len(args)))
	for _, arg := range args {
		dst = appendHeader(dst, '$', int64(len(arg)))
		dst = append(dst, arg...)
		dst = append(dst, '\r', '\n')
	}
	return dst
}

func appendHeader(dst []byte, kind byte, n int64) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

// AppendError appends an error reply. Line ends in text become spaces, as in Redis: they would end
// the reply.
func AppendError(dst []byte, text string) []byte {
	dst = append(dst, '-')
	for _, c := range []byte(text) {
		if c == '\r' || c == '\n' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return append(dst, '\r', '\n')
}
