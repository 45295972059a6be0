package proxy

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/wire"
)

func TestListByPattern(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    bool
	}{
		{"*", true}, {"", false}, {"lock", true}, {"l*k", true}, {"l*", true}, {"*x*", false},
		{"l**k", true}, {"lo?k", true}, {"lo??k", false}, {"lo[a-d]k", true}, {"lo[^a-d]k", false},
		{"lo[xyc]k", true}, {`l\ock`, true}, {`l\*k`, false}, {`lo[\c]k`, true}, {"loc[", false},
		{`lock\`, false}, {"lock?", false},
	} {
		q := newCommandQuery(bytes.Fields([]byte("COMMAND LIST FILTERBY PATTERN any")))
		q.args[4] = []byte(c.pattern)
		if got := q.listed(lookup([]byte("lock")).lock); got != c.want {
			t.Errorf("%q matches lock: %v", c.pattern, got)
		}
	}
}

// An upstream of another version is answered in its own terms.
func TestIntrospectionOfOlderRedis(t *testing.T) {
	words := func(line string) [][]byte { return bytes.Fields([]byte(line)) }
	old := "*6\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
	for _, c := range []struct{ request, reply, want string }{
		{"COMMAND INFO unlock", "*2\r\n*-1\r\n" + old, "*1\r\n*6\r\n$6\r\nunlock\r\n:-2\r\n" +
			"*2\r\n+write\r\n+noscript\r\n:1\r\n:1\r\n:1\r\n"},
		{"COMMAND DOCS lock", "-NOPERM no", "-NOPERM no"},
		{"COMMAND GETKEYSANDFLAGS LOCK a 600", "-ERR Unknown subcommand", "-ERR Unknown subcommand"},
		{"COMMAND GETKEYS LOCK a 600", "-ERR Invalid command specified\r\n", "*1\r\n$1\r\na\r\n"},
		{"COMMAND GETKEYS LOCK a 600", "*1\r\n$1\r\nx\r\n", "*1\r\n$1\r\nx\r\n"},
		{"COMMAND COUNT", "*1\r\n" + old, ":13\r\n"},
		{"COMMAND COUNT", "+what\r\n", "+what\r\n"},
		{"COMMAND COUNT", "-NOPERM no", "-NOPERM no"},
		{"COMMAND LIST", "*2\r\n$4\r\nLOCK\r\n$3\r\nget\r\n", "*13\r\n$3\r\nget\r\n$4\r\nlock\r\n" +
			"$7\r\nlockall\r\n$9\r\nunlockall\r\n$6\r\nunlock\r\n$6\r\nrelock\r\n" +
			"$8\r\nlockinfo\r\n$8\r\nlockscan\r\n" +
			"$7\r\nlocktop\r\n$7\r\nlocklog\r\n$4\r\nonce\r\n$4\r\ndone\r\n" +
			"$5\r\nfence\r\n"},
	} {
		q := newCommandQuery(words(c.request))
		if q == nil {
			t.Errorf("%s: not asked", c.request)
		} else if got := q.answer([]byte(c.reply)); string(got) != c.want {
			t.Errorf("%s after %q:\n got %q\nwant %q", c.request, c.reply, got, c.want)
		}
	}
	bare := "*3\r\n" + old + strings.Replace(old, "$3\r\nget", "$4\r\nlock", 1) +
		strings.Replace(old, "get", "set", 1)
	for request, want := range map[string]string{
		"COMMAND COUNT":                     ":14\r\n",
		"COMMAND LIST FILTERBY PATTERN *x*": string(errNoSubcommands),
		"COMMAND GETKEYS LOCK a 600":        "*1\r\n$1\r\na\r\n",
		"COMMAND GETKEYS LOCKSCAN 0":        string(errNoKeyArgs),
		"COMMAND GETKEYS FENCE a 1 MSET b 1 c 2": "*3\r\n$1\r\na\r\n$1\r\nb\r\n" +
			"$1\r\nc\r\n",
		"COMMAND GETKEYS FENCE a 1 PING": "*1\r\n$1\r\na\r\n",
		"COMMAND GETKEYSANDFLAGS UNLOCK a 600": "*1\r\n*2\r\n$1\r\na\r\n*3\r\n+RW\r\n" +
			"+access\r\n+delete\r\n",
	} {
		if got := newCommandQuery(words(request)).answer([]byte(bare)); string(got) != want {
			t.Errorf("%s without subcommands: %q, want %q", request, got, want)
		}
	}
	all := newCommandQuery(words("COMMAND")).answer([]byte("*1\r\n" + old))
	_, elems, err := wire.Elements(string(all))
	if err != nil || len(elems) != 13 || elems[0] != old ||
		!strings.HasPrefix(elems[12], "*6\r\n$5\r\nfence\r\n") {
		t.Errorf("COMMAND: %q, %v", all, err)
	}
}

// An upstream that doesn't know COMMAND DOCS, or answers it as COMMAND, doesn't keep redis-cli from
// hinting the lock commands and all others.
func TestDocsWhereTheUpstreamHasNone(t *testing.T) {
	for _, reply := range []string{"-ERR Unknown subcommand\r\n",
		"*1\r\n*3\r\n$3\r\nget\r\n:2\r\n*0\r\n"} {
		for _, c := range []struct {
			request string
			proto   int
			want    []string // some of the names, in order
			pairs   int      // at least
		}{
			{"COMMAND DOCS", 2, []string{"set", "lock", "fence"}, 200},
			{"COMMAND DOCS", 3, []string{"get", "lock", "fence"}, 200},
			{"COMMAND DOCS lock GET nothing", 3, []string{"lock", "get"}, 2},
			{"COMMAND DOCS unlock", 2, []string{"unlock"}, 1},
		} {
			q := newCommandQuery(bytes.Fields([]byte(c.request)))
			q.proto = c.proto
			raw := q.answer([]byte(reply))
			kind, elems, err := wire.Elements(string(raw))
			if want := map[int]byte{2: '*', 3: '%'}[c.proto]; err != nil || kind != want {
				t.Fatalf("%s: %c, %v", c.request, kind, err)
			}
			if len(elems) < 2*c.pairs || c.pairs < 200 && len(elems) > 2*c.pairs {
				t.Errorf("%s: %d pairs, want %d", c.request, len(elems)/2, c.pairs)
			}
			for i := 0; i < len(elems); i += 2 {
				if len(c.want) > 0 && elems[i] == wire.Bulk(c.want[0]) {
					c.want = c.want[1:]
				}
				if doc, err := wire.Parse(elems[i+1]); err != nil || len(doc.Elems) < 6 {
					t.Errorf("%s: %s: %v", c.request, elems[i], err)
				}
			}
			if len(c.want) > 0 {
				t.Errorf("%s: no %v in its place", c.request, c.want)
			}
		}
	}
}

// Redis answers a request that names more commands than there are.
func TestCommandsThatAreTooMany(t *testing.T) {
	for n, asked := range map[int]bool{maxNamed: true, maxNamed + 1: false} {
		args := slices.Repeat([][]byte{[]byte("lock")}, n)
		args[0], args[1] = []byte("COMMAND"), []byte("DOCS")
		if got := newCommandQuery(args) != nil; got != asked {
			t.Errorf("%d arguments: %v", n, got)
		}
	}
}
