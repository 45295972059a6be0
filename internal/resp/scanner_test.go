package resp_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"lockproxy/internal/resp"
)

// reply is what a Scanner said of one reply, copied.
type reply struct {
	raw        string
	kind       byte
	line, elem string
	last       int64
}

// scan feeds chunks to a Scanner and returns the replies, what is left of an incomplete one, and
// the error that ended them.
func scan(t testing.TB, chunks ...[]byte) (replies []reply, left []byte, err error) {
	t.Helper()
	return scanBy(t, (*resp.Scanner).Scan, chunks...)
}

// scanBy is scan by one of a Scanner's two methods.
func scanBy(
	t testing.TB, next func(*resp.Scanner, []byte) (int, bool, error), chunks ...[]byte,
) (replies []reply, left []byte, err error) {
	t.Helper()
	var s resp.Scanner
	for _, chunk := range chunks {
		for len(chunk) > 0 {
			n, done, err := next(&s, chunk)
			switch {
			case n > len(chunk):
				t.Fatalf("%d bytes claimed of %d", n, len(chunk))
			case err == nil && !done && n != len(chunk):
				t.Fatalf("stopped after %d of %d bytes within a reply", n, len(chunk))
			case err == nil && s.Began() == done:
				t.Fatalf("within a reply: %v, done: %v", s.Began(), done)
			}
			left = append(left, chunk[:n]...)
			if err != nil {
				return replies, left, err
			}
			chunk = chunk[n:]
			if done {
				h := s.Head()
				replies = append(replies, reply{string(left), h.Type, string(h.Line),
					string(h.Elem), h.Last})
				left = nil
			}
		}
	}
	return replies, left, nil
}

func TestScannerHeads(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, want := range []reply{
		{raw: "+OK\r\n", kind: '+', line: "OK"},
		{raw: "+\r\n", kind: '+'},
		{raw: "-ERR no\r\n", kind: '-', line: "ERR no"},
		{raw: ":-42\r\n", kind: ':', line: "-42"},
		{raw: "$3\r\nabc\r\n", kind: '$', line: "3"},
		{raw: "$0\r\n\r\n", kind: '$', line: "0"},
		{raw: "$-1\r\n", kind: '$', line: "-1"},
		{raw: "$7\r\n\r\n+OK\r\n\r\n", kind: '$', line: "7"},
		{raw: "*0\r\n", kind: '*', line: "0"},
		{raw: "*-1\r\n", kind: '*', line: "-1"},
		{raw: "*2\r\n$1\r\na\r\n:7\r\n", kind: '*', line: "2", elem: "a", last: 7},
		{raw: "*2\r\n:1\r\n$1\r\na\r\n", kind: '*', line: "2", last: 1},
		{raw: "*3\r\n$9\r\nsubscribe\r\n$2\r\n:9\r\n:1\r\n", kind: '*', line: "3",
			elem: "subscribe", last: 1},
		{raw: "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n", kind: '*', line: "3",
			elem: "unsubscribe"},
		{raw: "*2\r\n$-1\r\n$1\r\na\r\n", kind: '*', line: "2"},
		{raw: "*1\r\n*2\r\n$1\r\na\r\n:5\r\n", kind: '*', line: "1"},
		{raw: "*3\r\n*0\r\n*-1\r\n*1\r\n*1\r\n+a\r\n", kind: '*', line: "3"},
		{raw: "*1\r\n$100\r\n" + long + "\r\n", kind: '*', line: "1", elem: long[:64]},
		// RESP3
		{raw: "_\r\n", kind: '_'},
		{raw: "#t\r\n", kind: '#', line: "t"},
		{raw: ",1.5\r\n", kind: ',', line: "1.5"},
		{raw: ",inf\r\n", kind: ',', line: "inf"},
		{raw: "(3492890328409238509324850943850943825024385\r\n", kind: '(',
			line: "3492890328409238509324850943850943825024385"},
		{raw: "!5\r\nERR a\r\n", kind: '!', line: "5"},
		{raw: "=7\r\ntxt:abc\r\n", kind: '=', line: "7"},
		{raw: "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", kind: '%', line: "2", last: 1},
		{raw: "%0\r\n", kind: '%', line: "0"},
		{raw: "~2\r\n:1\r\n:2\r\n", kind: '~', line: "2", last: 2},
		{raw: ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n", kind: '>', line: "3",
			elem: "message"},
		{raw: ">0\r\n", kind: '>', line: "0"},
		// An attribute belongs to the value behind it, whose head is what counts.
		{raw: "|1\r\n+ttl\r\n:9\r\n+OK\r\n", kind: '+', line: "OK"},
		{raw: "|0\r\n+OK\r\n", kind: '+', line: "OK"},
		{raw: "|1\r\n$1\r\nk\r\n*1\r\n:2\r\n|1\r\n+a\r\n+b\r\n*2\r\n$1\r\nx\r\n:3\r\n", kind: '*',
			line: "2", elem: "x", last: 3},
		{raw: "|1\r\n+a\r\n:5\r\n*1\r\n+x\r\n", kind: '*', line: "1"},
		{raw: "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n", kind: '*', line: "2", last: 2},
		{raw: ">2\r\n|1\r\n+a\r\n:8\r\n$9\r\nsubscribe\r\n:1\r\n", kind: '>', line: "2",
			elem: "subscribe", last: 1},
	} {
		in := []byte("+before\r\n" + want.raw + "+behind\r\n")
		for at := 0; at <= len(in); at++ {
			replies, left, err := scan(t, in[:at], in[at:])
			if err != nil || len(left) > 0 || len(replies) != 3 || replies[1] != want {
				t.Fatalf("%q cut at %d: got %+v, left %q, error %v; want %+v", in, at, replies,
					left, err, want)
			}
		}
		if replies, _, err := scan(t, bytewise(in)...); err != nil || len(replies) != 3 ||
			replies[1] != want {
			t.Errorf("%q by bytes: got %+v, error %v", in, replies, err)
		}
	}
}

// A push within another reply is no element of it, so nobody can tell what follows. Who does not
// need to is told so by the head.
func TestScannerPushWithin(t *testing.T) {
	for in, want := range map[string]bool{
		"*1\r\n>1\r\n+a\r\n":             true,
		"*2\r\n:1\r\n>1\r\n+a\r\n":       true,
		"*1\r\n*1\r\n>1\r\n+a\r\n":       true,
		">2\r\n+a\r\n*1\r\n+b\r\n":       false,
		"*1\r\n$5\r\n>1\r\n+\r\n":        false,
		"*1\r\n>1\r\n+a\r\n*1\r\n+b\r\n": false, // of the last one
	} {
		var s resp.Scanner
		for data := []byte(in); len(data) > 0; {
			n, _, err := s.ScanWithPushes(data)
			if err != nil {
				t.Fatalf("%q: %v", in, err)
			}
			data = data[n:]
		}
		if got := s.Head().PushWithin; got != want {
			t.Errorf("%q: %v", in, got)
		}
		within := strings.Count(in, ">") > strings.Count(in, "$") && in[0] != '>'
		for at := range len(in) {
			_, _, err := scan(t, []byte(in[:at]), []byte(in[at:]))
			if (err == resp.ErrPushWithin) != within || err != nil && !within {
				t.Errorf("%q cut at %d: %v", in, at, err)
			}
		}
	}
}

// A reader that has begun to count a push within as an element, and needs to know what follows by
// then, is told.
func TestScannerPushWithinBefore(t *testing.T) {
	var s resp.Scanner
	if _, _, err := s.ScanWithPushes([]byte("*2\r\n>1\r\n+a\r\n")); err != nil {
		t.Fatal(err)
	}
	if n, done, err := s.Scan([]byte("+b\r\n")); n > 0 || done || err != resp.ErrPushWithin {
		t.Errorf("%d bytes, done %v, %v", n, done, err)
	}
}

// However long a line is, and wherever it is cut, its head is the same.
func TestScannerLongLines(t *testing.T) {
	for n := 55; n <= 75; n++ {
		for _, text := range []string{strings.Repeat("a", n), strings.Repeat("a\r", n/2)} {
			in := []byte("-" + text + "\r\n")
			whole, _, err := scan(t, in)
			if err != nil || len(whole) != 1 {
				t.Fatalf("%q: %+v, %v", in, whole, err)
			}
			for at := 1; at < len(in); at++ {
				if cut, _, err := scan(t, in[:at], in[at:]); err != nil ||
					!reflect.DeepEqual(cut, whole) {
					t.Fatalf("%q cut at %d: got %+v, %v; at once %+v", in, at, cut, err, whole)
				}
			}
		}
	}
}

func TestScannerRefuses(t *testing.T) {
	for _, in := range []string{
		"\r\n", "\n", "x\r\n", "OK\r\n", "HTTP/1.1 400 Bad Request\r\n",
		"$x\r\n", "$\r\n", "$-2\r\n", "$+1\r\n", "$1 \r\n", "*x\r\n", "*-2\r\n", "%x\r\n", "$?\r\n",
		"*?\r\n",
		"$99999999999999999999\r\n", "*99999999999999999999\r\n",
		// Lengths that would wrap once the line end, or the values of a map, are added.
		"$9223372036854775807\r\n", "$9223372036854775806\r\n", "=9223372036854775807\r\n",
		"%9223372036854775807\r\n", "%4611686018427387904\r\n", "|9223372036854775807\r\n",
		strings.Repeat("*1\r\n", 1<<16+1),
		"$" + strings.Repeat("1", 100) + "\r\n",
	} {
		if replies, _, err := scan(t, []byte(in)); err == nil {
			t.Errorf("%.40q: got %+v, want an error", in, replies)
		}
		if _, _, err := scan(t, bytewise([]byte(in))...); err == nil {
			t.Errorf("%.40q by bytes: want an error", in)
		}
	}
}

// A length costs nothing, and neither does what is passed.
func TestScannerMemory(t *testing.T) {
	piece := bytes.Repeat([]byte("x"), 64<<10)
	got := allocated(func() {
		var s resp.Scanner
		for _, header := range []string{"$4611686018427387000\r\n", "*4611686018427387000\r\n"} {
			s = resp.Scanner{}
			s.Scan([]byte(header))
		}
		s = resp.Scanner{}
		s.Scan(fmt.Appendf(nil, "*2\r\n$%d\r\n", 100*len(piece)))
		for range 100 {
			if _, done, err := s.Scan(piece); done || err != nil {
				t.Fatal(done, err)
			}
		}
	})
	if got > 64<<10 {
		t.Errorf("%d bytes allocated", got)
	}
}

func TestHead(t *testing.T) {
	for _, test := range []struct {
		in          string
		isOK, isErr bool
	}{
		{"+OK\r\n", true, false}, {"+OKAY\r\n", false, false}, {"$2\r\nOK\r\n", false, false},
		{"-ERR\r\n", false, true}, {"!3\r\nERR\r\n", false, true}, {"-OK\r\n", false, true},
	} {
		var s resp.Scanner
		s.Scan([]byte(test.in))
		if h := s.Head(); h.IsOK() != test.isOK || h.IsError() != test.isErr {
			t.Errorf("%q: OK %v, error %v", test.in, h.IsOK(), h.IsError())
		}
	}
}

func TestParseValue(t *testing.T) {
	text := func(kind byte, s string) resp.Value { return resp.Value{Type: kind, Text: []byte(s)} }
	number := func(n int64) resp.Value { return resp.Value{Type: ':', Int: n} }
	null := resp.Value{Type: '_'}
	for _, test := range []struct {
		in   string
		want resp.Value
	}{
		{"+OK\r\n", text('+', "OK")},
		{"-ERR x\r\n", text('-', "ERR x")},
		{":-5\r\n", number(-5)},
		{"$3\r\na\r\n\r\n", text('$', "a\r\n")},
		{"$0\r\n\r\n", text('$', "")},
		{"$-1\r\n", null}, {"*-1\r\n", null}, {"_\r\n", null},
		{"#t\r\n", text('#', "t")}, {",1.5\r\n", text(',', "1.5")}, {"(9\r\n", text('(', "9")},
		{"!3\r\nERR\r\n", text('!', "ERR")}, {"=5\r\ntxt:a\r\n", text('=', "txt:a")},
		{"*0\r\n", resp.Value{Type: '*'}},
		{"*2\r\n:1\r\n*1\r\n$-1\r\n", resp.Value{Type: '*',
			Elems: []resp.Value{number(1), {Type: '*', Elems: []resp.Value{null}}}}},
		{"%1\r\n+a\r\n:1\r\n", resp.Value{Type: '%',
			Elems: []resp.Value{text('+', "a"), number(1)}}},
		{"~1\r\n:1\r\n", resp.Value{Type: '~', Elems: []resp.Value{number(1)}}},
		{">1\r\n:1\r\n", resp.Value{Type: '>', Elems: []resp.Value{number(1)}}},
	} {
		got, err := resp.ParseValue([]byte(test.in))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: got %+v, %v; want %+v", test.in, got, err, test.want)
		}
		if got.IsNull() != (test.want.Type == '_') ||
			got.IsError() != (test.in[0] == '-' || test.in[0] == '!') {
			t.Errorf("%q: null %v, error %v", test.in, got.IsNull(), got.IsError())
		}
	}
	for _, in := range []string{
		"", "+", "+OK", "\n", "$3\r\nab\r\n", "$3\r\nabc\r", "$x\r\n", "*1\r\n", "*2\r\n:1\r\n",
		":x\r\n", "?\r\n", "x1\r\n",
		"+OK\r\n+OK\r\n", strings.Repeat("*1\r\n", 40) + ":1\r\n",
		"$9223372036854775807\r\nx\r\n", "$9223372036854775806\r\nx\r\n",
		"%9223372036854775807\r\n", "*9223372036854775807\r\n:1\r\n",
	} {
		if v, err := resp.ParseValue([]byte(in)); err == nil {
			t.Errorf("%q: got %+v, want an error", in, v)
		}
	}
}
