package resp_test

import (
	"strings"
	"testing"

	"lockproxy/internal/resp"
)

func TestSmallReply(t *testing.T) {
	long := "$9999\r\n" + strings.Repeat("x", 9999) + "\r\n"
	for in, want := range map[string]int{
		"$3\r\nabc\r\n": 9, "$0\r\n\r\n": 6, "$-1\r\n": 5, "+OK\r\n": 5, "_\r\n+": 3, ":0\r\n": 4,
		":-12\r\n": 6, ":1\r\n:2\r\n": 4,
		long: len(long), "$1\r\na\r\nrest": 7,
		"": 0, "$": 0, "$3\r\nabc\r": 0, "$3\r\nab": 0, "+OK\r": 0, "+QUEUED\r\n": 0, "-ERR\r\n": 0,
		"*0\r\n": 0, ":\r\n": 0, ":-\r\n": 0, ":1": 0, ":1\r": 0,
		"$03\r\nabc\r\n": 0, "$10000\r\n": 0, "#t\r\n": 0, ">1\r\n": 0, "$-2\r\n": 0, ":a\r\n": 0,
	} {
		if got := resp.SmallReply([]byte(in)); got != want {
			t.Errorf("%.20q: %d, want %d", in, got, want)
		}
		smallIsRight(t, []byte(in))
	}
}
