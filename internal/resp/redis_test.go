package resp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// ask sends raw to the Redis at addr, on a new connection, and returns all that it answers
// until it closes the connection or answers the ECHO that is sent behind, unless raw is a line too
// long to be ended.
func ask(t testing.TB, addr string, raw []byte) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(testwait.Deadline())
	const mark = "behind-it-all"
	if len(raw) <= resp.MaxInlineLen {
		raw = append(bytes.Clone(raw), "\r\nECHO "+mark+"\r\n"...)
	}
	go nc.Write(raw) // ends with the connection
	var got []byte
	piece := make([]byte, 4096)
	for {
		n, err := nc.Read(piece)
		got = append(got, piece[:n]...)
		if at := bytes.Index(got, []byte("$13\r\n"+mark)); at >= 0 {
			return string(got[:at])
		}
		// A reset comes instead of an end when Redis hadn't read all that was sent.
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("Redis is silent after %.60q; it has said %.60q", raw, got)
			}
			return string(got)
		}
	}
}

// Every malformed request: the Framer refuses it with Redis's own words.
func TestProtocolErrorsAreRedisOwn(t *testing.T) {
	redis := testredis.Start(t)
	long := strings.Repeat("1", 70<<10)
	for _, in := range []string{
		"*x\r\n",
		"*\r\n",
		"* 1\r\n",
		"*1 \r\n",
		"*+1\r\n",
		"*01\r\n",
		"*00\r\n",
		"*-0\r\n",
		"*--1\r\n",
		"*1.0\r\n",
		"*1e1\r\n",
		"*0x1\r\n",
		"*2147483648\r\n",
		"*3000000000\r\n",
		"*9223372036854775807\r\n",
		"*9223372036854775808\r\n",
		"*18446744073709551617\r\n",
		"*-9223372036854775809\r\n",
		"*" + long,
		"*1\r\n$" + long,
		"*1\r\n" + long,
		"*1\r\n:1\r\n",
		"*1\r\n*1\r\n",
		"*1\r\nPING\r\n",
		"*1\r\n\r\n",
		"*1\r\n\xff\r\n",
		"*1\r\n\n\r\n",
		"*2\r\n$4\r\nPING\r\nx\r\n",
		"*2\r\n$4\r\nPINGx$1\r\na\r\n",
		"*1\n$4\r\nPING\r\n",
		"*1\r\n$4\nPING\r\n",
		"*1\r\n$\r\n",
		"*1\r\n$x\r\n",
		"*1\r\n$-1\r\n",
		"*1\r\n$ 4\r\nPING\r\n",
		"*1\r\n$4 \r\nPING\r\n",
		"*1\r\n$+4\r\nPING\r\n",
		"*1\r\n$04\r\nPING\r\n",
		"*1\r\n$-0\r\n",
		"*1\r\n$536870913\r\n",
		"*1\r\n$9223372036854775807\r\nx",
		"*1\r\n$9223372036854775808\r\nx",
		"*1\r\n$18446744073709551620\r\nPING\r\n",
		strings.Repeat("x", 70<<10),
		strings.Repeat("\x00", 70<<10),
		"PING \"\r\n",
		"PING '\r\n",
		"PING \"a\"b\r\n",
		"PING 'a'b\r\n",
		"PING \"a\\\r\n",
		"PING \"a\\\"\r\n",
		"PING 'a\\'\r\n",
		"PING a\"b\r\n",
		"\"\r\n",
	} {
		_, _, err := frame(t, resp.Limits{}, []byte(in))
		text := reason(t, err)
		if text == "" {
			t.Errorf("%.40q is accepted", in)
			continue
		}
		if got := string(resp.AppendError(nil, "ERR "+err.Error())); !answersOtherwise(in) {
			if want := ask(t, redis.Addr(), []byte(in)); got != want {
				t.Errorf("%.40q: got %q, Redis says %q", in, got, want)
			}
		}
		if len(in) < 1000 {
			_, _, err := frame(t, resp.Limits{}, bytewise([]byte(in))...)
			if reason(t, err) != text {
				t.Errorf("%q: %q by bytes, %q at once", in, err, text)
			}
		}
	}
}

// answersOtherwise reports whether the server answers a malformed request otherwise than Redis up to
// 8.4 does. Redis 8.6 reads on in a length that never ends, and Valkey 9 has other words for what is
// behind an argument.
func answersOtherwise(in string) bool {
	switch {
	case !testredis.IsValkey():
		return testredis.Since(8, 6) && strings.HasPrefix(in, "*1\r\n") && len(in) > 64<<10
	case strings.HasPrefix(in, "*"):
		return testredis.Since(9, 0) && strings.Contains(in, "PINGx")
	}
	return splitsOtherwise(in)
}

// splitsOtherwise reports whether the server splits an inline command otherwise than Redis does.
// Valkey as of 8.1 takes the byte 255 for a blank, and as of 9 joins quoted parts to a word.
func splitsOtherwise(line string) bool {
	return testredis.IsValkey() && (testredis.Since(8, 1) && strings.Contains(line, "\xff") ||
		testredis.Since(9, 0) && strings.ContainsAny(line, "\"'\\"))
}

// splitter asks Redis how it splits an inline command into words. It connects again when Redis has
// closed.
type splitter struct {
	t    testing.TB
	addr string
	nc   net.Conn
}

// words returns the words of line, or Redis's error.
func (s *splitter) words(line string) (words []string, refused string) {
	if s.nc == nil {
		nc, err := net.Dial("tcp", s.addr)
		if err != nil {
			s.t.Fatal(err)
		}
		s.nc = nc
	}
	s.nc.SetDeadline(testwait.Deadline())
	io.WriteString(s.nc, "EVAL 'return ARGV' 0 "+line+"\n")
	var scan resp.Scanner
	var raw []byte
	b := make([]byte, 1)
	for done := false; !done; {
		if _, err := s.nc.Read(b); err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		raw = append(raw, b[0])
		_, done, _ = scan.Scan(b)
	}
	v, err := resp.ParseValue(raw)
	if err != nil {
		s.t.Fatalf("%q: %v", raw, err)
	}
	if v.IsError() {
		s.nc.Close()
		s.nc = nil
		return nil, string(v.Text)
	}
	for _, elem := range v.Elems {
		words = append(words, string(elem.Text))
	}
	return words, ""
}

func (s *splitter) compare(t interface{ Fatalf(string, ...any) }, line string) {
	if splitsOtherwise(line) {
		return
	}
	want, refused := s.words(line)
	reqs, left, err := frame(s.t, resp.Limits{}, []byte("x "+line+"\n"))
	switch {
	case err != nil:
		if got := "ERR " + err.Error(); got != refused {
			t.Fatalf("%q: got %q; Redis: %q, words %q", line, got, refused, want)
		}
	case refused != "":
		t.Fatalf("%q: got %+v, Redis refuses it: %s", line, reqs, refused)
	case len(reqs) != 1 || len(left) > 0 || !reqs[0].inline:
		t.Fatalf("%q: got requests %+v, left %q", line, reqs, left)
	default:
		if got := reqs[0].args[1:]; len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %q, Redis splits it into %q", line, got, want)
		}
	}
}

func TestInlineWordsAreRedisOwn(t *testing.T) {
	s := &splitter{t: t, addr: testredis.Start(t).Addr()}
	defer func() {
		if s.nc != nil {
			s.nc.Close()
		}
	}()
	for _, line := range []string{
		"", " ", "a", "a b", "a\tb", " a  b ", "a\rb", "a\r", "a\r\r", "a\vb", "a\fb", "\va\f",
		"\v", "a \v\f b",
		`"a"`, `""`, `'a'`, `''`, `"a b"`, `'a b'`, `a"b c"`, `a'b c'`, `"a" 'b'`, `"a"'b'`,
		"\"a\"\vb", "'a'\fb", "\"a\"\v", `"a"b`, `'a'b`, `"`, `'`,
		`"\n\r\t\b\a\\\"\'\q"`, `"\x41\xff\x00"`, `"\x4"`, `"\x4g"`, `"\xg4"`, `"\X41"`, `"\x4`,
		`"\x`, `"\`, `"\"`, `"a\`,
		`'\n\x41\\'`, `'\''`, `'\'`, `'\"'`, `\n`, `\"a"`, `a\ b`, "\xff\xfe", `"` + "\t\r\v" + `"`,
		"'\t\r\v'",
	} {
		s.compare(t, line)
	}
	// The same for any mix of the bytes that matter.
	alphabet := []byte("ab041xXfg nrt\t\r\v\f\"\"''\\\\\xff")
	rapid.Check(t, func(t *rapid.T) {
		s.compare(t, string(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 12).Draw(t, "line")))
	})
}

// ParseInt accepts what Redis accepts as a number in a header.
func TestParseInt(t *testing.T) {
	for _, test := range []struct {
		in   string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"7", 7, true}, {"-1", -1, true}, {"10", 10, true},
		{"9223372036854775807", 9223372036854775807, true},
		{"-9223372036854775808", -9223372036854775808, true},
		{in: "9223372036854775808"}, {in: "-9223372036854775809"}, {in: "9999999999999999999"},
		{in: "18446744073709551616"},
		{in: ""}, {in: "-"}, {in: "-0"}, {in: "00"}, {in: "+1"}, {in: " 1"}, {in: "1 "},
		{in: "1.0"}, {in: "0x1"}, {in: "1e1"}, {in: "１"},
	} {
		if got, ok := resp.ParseInt([]byte(test.in)); ok != test.ok || ok && got != test.want {
			t.Errorf("%q: got %d, %v", test.in, got, ok)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n")
		if got, ok := resp.ParseInt(strconv.AppendInt(nil, n, 10)); !ok || got != n {
			t.Fatalf("%d: got %d, %v", n, got, ok)
		}
	})
}
