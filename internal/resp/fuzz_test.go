package resp_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/testhostile"
)

// fuzzLimits are small, so that fuzzing meets them.
var fuzzLimits = resp.Limits{Args: 1 << 20, Bulk: 1 << 20, Inline: 200}

// cutBy splits b into pieces whose lengths come from pattern.
func cutBy(b, pattern []byte) (pieces [][]byte) {
	for i := 0; len(b) > 0; i++ {
		n := 1
		if len(pattern) > 0 {
			n = 1 + int(pattern[i%len(pattern)])%32
		}
		n = min(n, len(b))
		pieces, b = append(pieces, b[:n]), b[n:]
	}
	return pieces
}

// maxFuzzAlloc is more than what arrives can need, and far less than what can be announced.
const maxFuzzAlloc = 16 << 20

// maxFuzzInput keeps each case quick, bytes.
const maxFuzzInput = 8 << 10

func FuzzFramer(f *testing.F) {
	for _, in := range testhostile.Requests(f) {
		in = in[:min(len(in), maxFuzzInput)]
		f.Add(in, []byte{0})
		f.Add(in, []byte{4, 0, 30})
	}
	f.Fuzz(func(t *testing.T, in, pattern []byte) {
		if len(in) > maxFuzzInput {
			return
		}
		whole, left, err := frame(t, fuzzLimits, in)
		pieces, leftInPieces, errInPieces := frame(t, fuzzLimits, cutBy(in, pattern)...)
		if !reflect.DeepEqual(pieces, whole) || reason(t, errInPieces) != reason(t, err) {
			t.Fatalf("in pieces: %+v, %v\nat once: %+v, %v", pieces, errInPieces, whole, err)
		}
		if err == nil && !bytes.Equal(left, leftInPieces) {
			t.Fatalf("left in pieces %q, at once %q", leftInPieces, left)
		}
		var joined []byte
		for _, r := range whole {
			joined = append(joined, r.raw...)
			for _, arg := range r.args {
				if !r.inline && !strings.Contains(r.raw, arg) {
					t.Fatalf("argument %q is not in %q", arg, r.raw)
				}
			}
		}
		if !bytes.Equal(append(joined, left...), in) {
			t.Fatalf("requests and rest are not the input: %q, %q", joined, left)
		}
		// Streamed from anywhere, the same bytes go on.
		passed, _, streamErr := stream(t, in, 1+len(pattern), len(in)/2)
		if !bytes.HasPrefix(in, passed) {
			t.Fatalf("streamed %q, error %v", passed, streamErr)
		}
		if got := allocated(func() { frame(t, resp.Limits{}, in) }); got > maxFuzzAlloc {
			t.Fatalf("%d bytes allocated for %d", got, len(in))
		}
	})
}

func FuzzScanner(f *testing.F) {
	for _, in := range []string{
		"+OK\r\n-ERR x\r\n:1\r\n$3\r\nabc\r\n*2\r\n$1\r\na\r\n:7\r\n",
		"%1\r\n+a\r\n~1\r\n_\r\n>2\r\n+x\r\n#t\r\n|1\r\n+a\r\n:1\r\n,1.5\r\n" +
			"(123\r\n!3\r\nERR\r\n=5\r\ntxt:a\r\n",
		"$9223372036854775807\r\n+OK\r\n",
		"%4611686018427387904\r\n",
		"*2305843009213693952\r\n$2305843009213693952\r\nx",
		strings.Repeat("*1\r\n", 100) + ":1\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$-1\r\n:0\r\n",
		"-" + strings.Repeat("a\r", 40) + "\r\n",
		"HTTP/1.1 400 Bad Request\r\n\r\n",
		"$-1\r\n*-1\r\n%-1\r\n$-2\r\n",
	} {
		f.Add([]byte(in), []byte{0})
		f.Add([]byte(in), []byte{4, 0, 30})
	}
	f.Fuzz(func(t *testing.T, in, pattern []byte) {
		if len(in) > maxFuzzInput {
			return
		}
		whole, left, err := scan(t, in)
		pieces, leftInPieces, errInPieces := scan(t, cutBy(in, pattern)...)
		if !reflect.DeepEqual(pieces, whole) || (errInPieces == nil) != (err == nil) {
			t.Fatalf("in pieces: %+v, %v\nat once: %+v, %v", pieces, errInPieces, whole, err)
		}
		if err == nil && !bytes.Equal(left, leftInPieces) {
			t.Fatalf("left in pieces %q, at once %q", leftInPieces, left)
		}
		var joined []byte
		for _, r := range whole {
			joined = append(joined, r.raw...)
			resp.ParseValue([]byte(r.raw)) // must not panic
		}
		if !bytes.HasPrefix(in, append(joined, left...)) {
			t.Fatalf("replies and rest are not the input: %q, %q", joined, left)
		}
		resp.ParseValue(in)
		smallIsRight(t, in)
		if got := allocated(func() { scan(t, in) }); got > maxFuzzAlloc {
			t.Fatalf("%d bytes allocated for %d", got, len(in))
		}
	})
}

// smallIsRight: what SmallReply takes is what a Scanner takes, and says nothing that a Scanner's
// user must act on.
func smallIsRight(t *testing.T, in []byte) {
	n := resp.SmallReply(in)
	if n == 0 {
		return
	}
	var s resp.Scanner
	taken, done, err := s.Scan(in)
	if head := s.Head(); taken != n || !done || err != nil || head.IsError() || head.Elem != nil ||
		strings.IndexByte("$+:_", head.Type) < 0 {
		t.Fatalf("of %q SmallReply takes %d, a Scanner %d, done %v, error %v, head %+v", in, n,
			taken, done, err, head)
	}
}
