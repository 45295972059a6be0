package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/resp"
)

// A request is what a Framer said of one request, copied out of the buffer.
type request struct {
	raw    string
	args   []string
	inline bool
}

func copied(r resp.Request) request {
	out := request{raw: string(r.Raw), inline: r.Inline}
	for _, arg := range r.Args {
		out.args = append(out.args, string(arg))
	}
	return out
}

// frame feeds chunks to a Framer as a session does, and returns all requests and the error that
// ended them. left is what no request has claimed.
func frame(t testing.TB, limits resp.Limits, chunks ...[]byte) (reqs []request, left []byte,
	err error) {
	t.Helper()
	f := resp.NewFramer(limits)
	for _, chunk := range chunks {
		left = append(left, chunk...)
		for {
			r, ok, err := f.Next(left)
			if len(r.Raw) > len(left) {
				t.Fatalf("%d bytes claimed of %d", len(r.Raw), len(left))
			}
			if err != nil {
				return reqs, left, err
			}
			if !ok {
				if r.Raw != nil || r.Args != nil {
					t.Fatalf("an incomplete request, not streamed, has bytes or arguments: %+v",
						copied(r))
				}
				break
			}
			if len(r.Raw) == 0 {
				t.Fatal("a whole request without bytes")
			}
			reqs = append(reqs, copied(r))
			left = left[len(r.Raw):]
		}
	}
	return reqs, left, nil
}

// bytewise cuts b into single bytes.
func bytewise(b []byte) [][]byte { return slices.Collect(slices.Chunk(b, 1)) }

// words are the arguments of each request that has any: the others are ignored, by Redis too.
func words(reqs []request) (all [][]string) {
	for _, r := range reqs {
		if len(r.args) > 0 {
			all = append(all, r.args)
		}
	}
	return all
}

func TestFramerRequests(t *testing.T) {
	for _, test := range []struct {
		name string
		in   string
		want [][]string
		left string
	}{
		{name: "nothing"},
		{name: "array", in: "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", want: [][]string{{"GET", "k"}}},
		{name: "empty argument", in: "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
			want: [][]string{{"ECHO", ""}}},
		{name: "binary argument", in: "*2\r\n$4\r\nECHO\r\n$5\r\n\x00\r\n\xff*\r\n",
			want: [][]string{{"ECHO", "\x00\r\n\xff*"}}},
		{name: "pipeline", in: "*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
			want: [][]string{{"PING"}, {"PING"}, {"PING"}}},
		{name: "inline", in: "PING\r\n", want: [][]string{{"PING"}}},
		{name: "inline without CR", in: "SET a b\n", want: [][]string{{"SET", "a", "b"}}},
		{name: "inline with blanks", in: " \t SET  a\tb \r\n", want: [][]string{{"SET", "a", "b"}}},
		{name: "empty lines are ignored", in: "\r\n\n\r\n  \r\nPING\r\n",
			want: [][]string{{"PING"}}},
		{name: "arrays of none are ignored", in: "*0\r\n*-1\r\n*-9223372036854775808\r\nPING\r\n",
			want: [][]string{{"PING"}}},
		// Redis looks at neither the byte behind a header's CR, nor the two behind an argument.
		{name: "any byte for LF", in: "*1\rx$4\ryPINGab", want: [][]string{{"PING"}}},
		{name: "incomplete count", in: "PING\r\n*2\r", want: [][]string{{"PING"}}, left: "*2\r"},
		{name: "incomplete length", in: "*2\r\n$3", left: "*2\r\n$3"},
		{name: "incomplete argument", in: "*1\r\n$4\r\nPIN", left: "*1\r\n$4\r\nPIN"},
		{name: "argument without its line end", in: "*1\r\n$4\r\nPING\r",
			left: "*1\r\n$4\r\nPING\r"},
		{name: "incomplete inline", in: "PING", left: "PING"},
		{name: "a NUL hides the line's end", in: "PI\x00NG\r\nPING\r\n",
			left: "PI\x00NG\r\nPING\r\n"},
		{name: "begins as TLS, but ends", in: "\x16\x03\x01\r\n",
			want: [][]string{{"\x16\x03\x01"}}},
		{name: "no version of TLS", in: "\x16\x03\x05\x00\n", left: "\x16\x03\x05\x00\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for how, chunks := range map[string][][]byte{"whole": {[]byte(test.in)},
				"by byte": bytewise([]byte(test.in))} {
				reqs, left, err := frame(t, resp.Limits{}, chunks...)
				if err != nil || !reflect.DeepEqual(words(reqs), test.want) ||
					string(left) != test.left {
					t.Errorf("%s: got %q, left %q, error %v; want %q, left %q", how, words(reqs),
						left, err, test.want, test.left)
				}
			}
		})
	}
}

func TestFramerLimits(t *testing.T) {
	limits := resp.Limits{Args: 3, Bulk: 10, Inline: 20}
	for _, test := range []struct {
		in   string
		want string // the error; "" for none
	}{
		{"*3\r\n$1\r\na\r\n$1\r\nb\r\n$10\r\n0123456789\r\n", ""},
		{"*4\r\n", "invalid multibulk length"},
		{"*1\r\n$11\r\n", "invalid bulk length"},
		{strings.Repeat("i", 20) + "\n", ""},
		{strings.Repeat("i", 21), "too big inline request"},
		{strings.Repeat("\x00", 21), "too big inline request"},
		{"\x16\x03\x01\x02\x00\x01", "this port does not speak TLS"},
		{"*" + strings.Repeat("1", 20), "too big mbulk count string"},
		{"*1\r\n$" + strings.Repeat("1", 20), "too big bulk count string"},
	} {
		for how, chunks := range map[string][][]byte{"whole": {[]byte(test.in)},
			"by byte": bytewise([]byte(test.in))} {
			_, _, err := frame(t, limits, chunks...)
			if got := reason(t, err); got != test.want {
				t.Errorf("%q, %s: got %q, want %q", test.in, how, got, test.want)
			}
		}
	}
}

// reason is the text of a protocol error, or "".
func reason(t testing.TB, err error) string {
	t.Helper()
	var protocol *resp.ProtocolError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &protocol):
		return protocol.Reason
	}
	t.Fatalf("not a ProtocolError: %v", err)
	return ""
}

// The limits that hold without being set are Redis's own.
func TestFramerDefaultLimits(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"*2147483647\r\n$536870912\r\nx", ""},
		{"*2147483648\r\n", "invalid multibulk length"},
		{"*1\r\n$536870913\r\n", "invalid bulk length"},
		{strings.Repeat("i", 64<<10), ""},
		{strings.Repeat("i", 64<<10+1), "too big inline request"},
	} {
		_, _, err := frame(t, resp.Limits{}, []byte(test.in))
		if got := reason(t, err); got != test.want {
			t.Errorf("%.30q: got %q, want %q", test.in, got, test.want)
		}
	}
}

func TestFramerHead(t *testing.T) {
	f := resp.NewFramer(resp.Limits{})
	const in = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n"
	for _, test := range []struct {
		have int
		want string
		argc int
	}{
		{3, "[]", 0}, {4, "[]", 3}, {12, "[]", 3}, {13, "[SET]", 3}, {19, "[SET]", 3},
		{20, "[SET k]", 3}, {26, "[SET k]", 3},
	} {
		if _, ok, err := f.Next([]byte(in[:test.have])); ok || err != nil {
			t.Fatalf("%d bytes: %v, %v", test.have, ok, err)
		}
		args, argc := f.Head([]byte(in[:test.have]), 9)
		if got := fmt.Sprintf("%s", args); got != test.want || argc != test.argc {
			t.Errorf("%q: got %s of %d, want %s of %d", in[:test.have], got, argc, test.want,
				test.argc)
		}
	}
	if args, argc := f.Head([]byte(in[:26]), 1); len(args) != 1 || argc != 3 {
		t.Errorf("at most one argument: got %s of %d", args, argc)
	}
}

// stream frames in, fed n bytes at a time, giving up each request that is incomplete when at bytes
// of the input have come. It returns every byte that was passed on, and the requests that came
// whole.
func stream(t testing.TB, in []byte, n, at int) (passed []byte, whole []request, err error) {
	t.Helper()
	f := resp.NewFramer(resp.Limits{})
	var buf []byte
	streaming := false
	for fed := 0; fed < len(in); {
		take := min(n, len(in)-fed)
		buf = append(buf, in[fed:fed+take]...)
		fed += take
		for len(buf) > 0 {
			r, ok, err := f.Next(buf)
			if err != nil {
				return passed, whole, err
			}
			passed = append(passed, r.Raw...)
			buf = buf[len(r.Raw):]
			if streaming && r.Args != nil {
				t.Fatalf("a piece has arguments: %+v", copied(r))
			}
			if ok && !streaming {
				whole = append(whole, copied(r))
			}
			if !ok {
				break
			}
			streaming = false
		}
		if _, argc := f.Head(buf, 1); fed >= at && argc > 0 && !streaming {
			raw := f.Stream(buf)
			passed = append(passed, raw...)
			buf = buf[len(raw):]
			streaming = true
		}
	}
	return passed, whole, nil
}

func TestFramerStream(t *testing.T) {
	in := []byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nvalue\r\nvalue\r\n" +
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n")
	for n := 1; n <= len(in); n++ {
		for at := 1; at <= len(in); at++ {
			passed, whole, err := stream(t, in, n, at)
			if err != nil || !bytes.Equal(passed, in) {
				t.Fatalf("%d bytes at a time, streamed from %d: passed %q, error %v", n, at, passed,
					err)
			}
			if last := whole[len(whole)-1]; last.raw != "PING\r\n" {
				t.Fatalf("%d bytes at a time, streamed from %d: then came %+v", n, at, last)
			}
		}
	}
}

func TestFramerStreamErrors(t *testing.T) {
	for _, test := range []struct{ tail, want string }{
		{"$x\r\n", "invalid bulk length"},
		{":1\r\n", "expected '$', got ':'"},
		{strings.Repeat("x", 64<<10+1), "too big bulk count string"},
	} {
		in := []byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n" + test.tail)
		for _, n := range []int{1, 3, len(in)} {
			if n == 1 && len(in) > 1000 {
				continue // one byte at a time is shown by the short ones
			}
			passed, _, err := stream(t, in, n, 15)
			if got := reason(t, err); got != test.want {
				t.Errorf("%.20q, %d bytes at a time: got %q, want %q", test.tail, n, got, test.want)
			}
			if !bytes.HasPrefix(in, passed) {
				t.Errorf("%.20q, %d bytes at a time: passed %q", test.tail, n, passed)
			}
		}
	}
}

// What a client announces costs nothing before it comes.
func TestFramerAllocatesNothingAhead(t *testing.T) {
	for _, in := range []string{"*2147483647\r\n$1\r\na\r\n", "*1\r\n$536870912\r\nabc",
		"*2147483647\r\n$536870912\r\n"} {
		next := func() { resp.NewFramer(resp.Limits{}).Next([]byte(in)) }
		if got := allocated(next); got > 64<<10 {
			t.Errorf("%q: %d bytes allocated", in, got)
		}
	}
}

// allocated returns how many bytes f, and what else runs meanwhile, allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A byte is looked at once, however small the pieces in which it comes.
func TestFramerLooksAtBytesOnce(t *testing.T) {
	const n = 200_000
	in := append(fmt.Appendf(nil, "*%d\r\n", n), bytes.Repeat([]byte("$1\r\nx\r\n"), n)...)
	f := resp.NewFramer(resp.Limits{})
	const partial = 16 // bytes at the end of a piece, which may be looked at again
	for have, seen := 0, 0; have < len(in); have += 700 {
		if _, ok, err := f.Next(in[:have]); ok || err != nil {
			t.Fatal(ok, err)
		}
		for ; seen < have-partial; seen++ {
			in[seen] = '!' // no request can have it here
		}
	}
	r, ok, err := f.Next(in)
	if err != nil || !ok || len(r.Args) != n {
		t.Fatalf("%d arguments, %v, %v", len(r.Args), ok, err)
	}
	// What one huge request needed isn't kept for the small ones behind it.
	f.Next([]byte("PING\r\n"))
	if args, _, _ := f.Next([]byte("*1\r\n$4\r\nPING\r\n")); cap(args.Args) > n/2 {
		t.Errorf("room for %d arguments is kept", cap(args.Args))
	}
}

func TestAppendError(t *testing.T) {
	if got := string(resp.AppendError(nil, "ERR a\r\nb")); got != "-ERR a  b\r\n" {
		t.Errorf("got %q", got)
	}
}

// A request is loose if anything other than CRLF ends one of its lines or arguments, however it
// comes. The next one is not.
func TestLooseRequests(t *testing.T) {
	for in, want := range map[string]bool{
		"*1\r\n$4\r\nPING\r\n": false, "*1\rx$4\r\nPING\r\n": true, "*1\r\n$4\rxPING\r\n": true,
		"*1\r\n$4\r\nPINGab": true, "*1\r\n$4\r\nPING\rb": true, "PING\n": false,
		"*2\r\n$4\r\nECHOab$1\r\nx\r\n": true, "*2\r\n$4\r\nECHO\r\n$1\r\nxab": true,
	} {
		for _, at := range []int{0, len(in) - 1, len(in) - 2, len(in) / 2} {
			f := resp.NewFramer(resp.Limits{})
			f.Next([]byte(in)[:at])
			req, ok, err := f.Next([]byte(in))
			if !ok || err != nil || req.Loose != want {
				t.Errorf("%q, cut at %d: loose %v, %v, %v", in, at, req.Loose, ok, err)
			}
			req, ok, err = f.Next([]byte("*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n"))
			if !ok || err != nil || req.Loose {
				t.Errorf("behind %q: loose %v, %v, %v", in, req.Loose, ok, err)
			}
		}
	}
}

// What comes between Next and Stream belongs to the request only as far as that goes.
func TestStreamAmongLaterBytes(t *testing.T) {
	const large, next = "*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n", "*1\r\n$4\r\nPING\r\n"
	whole := []byte(large + next)
	for seen := 1; seen < len(large); seen++ {
		for came := seen; came <= len(whole); came++ {
			f := resp.NewFramer(resp.Limits{})
			if _, ok, err := f.Next(whole[:seen]); ok || err != nil {
				t.Fatalf("%q: %v, %v", whole[:seen], ok, err)
			}
			got := string(f.Stream(whole[:came]))
			for done := false; !done; {
				req, ok, err := f.Next(whole[len(got):])
				if err != nil {
					t.Fatalf("streamed at %d of %d, behind %q: %v", came, seen, got, err)
				}
				got, done = got+string(req.Raw), ok
			}
			if req, ok, err := f.Next(whole[len(got):]); got != large || !ok || err != nil ||
				string(req.Raw) != next {
				t.Fatalf("streamed at %d of %d: %q, then %q, %v, %v", came, seen, got, req.Raw, ok, err)
			}
		}
	}
}
