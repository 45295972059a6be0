package proxy

import (
	"strings"
	"testing"

	"lockproxy/internal/resp"
)

func TestGlobMatches(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    bool
	}{
		{"*", true}, {"", false}, {"lock", true}, {"l*k", true}, {"l*", true}, {"*x*", false},
		{"l**k", true}, {"lo?k", true}, {"lo??k", false}, {"lo[a-d]k", true}, {"lo[^a-d]k", false},
		{"lo[xyc]k", true}, {`l\ock`, true}, {`l\*k`, false}, {`lo[\c]k`, true}, {"loc[", false},
		{`lock\`, false}, {"lock?", false},
	} {
		if got := globMatches(c.pattern, "lock"); got != c.want {
			t.Errorf("%q matches lock: %v", c.pattern, got)
		}
	}
}

// An upstream of another version is answered in its own terms.
func TestIntrospectionOfOlderRedis(t *testing.T) {
	words := func(line string) (args [][]byte) {
		for _, word := range strings.Fields(line) {
			args = append(args, []byte(word))
		}
		return args
	}
	old := "*6\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
	for _, c := range []struct{ request, reply, want string }{
		{"COMMAND INFO unlock", "*2\r\n*-1\r\n" + old, "*1\r\n*6\r\n$6\r\nunlock\r\n:-2\r\n" +
			"*2\r\n+write\r\n+noscript\r\n:1\r\n:1\r\n:1\r\n"},
		{"COMMAND DOCS lock", "-ERR Unknown subcommand", "-ERR Unknown subcommand"},
		{"COMMAND GETKEYSANDFLAGS LOCK a 1", "-ERR Unknown subcommand", "-ERR Unknown subcommand"},
		{"COMMAND GETKEYS LOCK a 1", "-ERR Invalid command specified\r\n", "*1\r\n$1\r\na\r\n"},
		{"COMMAND GETKEYS LOCK a 1", "*1\r\n$1\r\nx\r\n", "*1\r\n$1\r\nx\r\n"},
		{"COMMAND COUNT", ":200\r\n", ":206\r\n"},
		{"COMMAND COUNT", "+what\r\n", "+what\r\n"},
		{"COMMAND LIST", "*2\r\n$4\r\nLOCK\r\n$3\r\nget\r\n", "*7\r\n$3\r\nget\r\n$4\r\nlock\r\n" +
			"$6\r\nunlock\r\n$6\r\nrelock\r\n$8\r\nlockinfo\r\n$8\r\nlockscan\r\n$5\r\nfence\r\n"},
	} {
		q := newCommandQuery(words(c.request), 2)
		if q == nil {
			t.Errorf("%s: not asked", c.request)
		} else if got := q.answer([]byte(c.reply)); string(got) != c.want {
			t.Errorf("%s after %q:\n got %q\nwant %q", c.request, c.reply, got, c.want)
		}
	}
	all := newCommandQuery(words("COMMAND"), 2).answer([]byte("*1\r\n" + old))
	_, elems, err := resp.Elements(all)
	if err != nil || len(elems) != 7 || string(elems[0]) != old ||
		!strings.HasPrefix(string(elems[6]), "*6\r\n$5\r\nfence\r\n") {
		t.Errorf("COMMAND: %q, %v", all, err)
	}
}
