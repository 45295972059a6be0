//go:build !race

package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"lockproxy/internal/resp"
)

// inPieces is a reader that returns as much at a time as a test drew.
type inPieces struct {
	t    *rapid.T
	left []byte
}

func (r *inPieces) Read(p []byte) (n int, err error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n = copy(p[:rapid.IntRange(1, len(p)).Draw(r.t, "read")], r.left)
	r.left = r.left[n:]
	return n, nil
}

// anyReply is a reply of any type, nested or not.
func anyReply(t *rapid.T, depth int) string {
	kinds := []string{"+OK\r\n", "+\r\n", "-ERR no\r\n", ":-1\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n",
		"_\r\n", "#t\r\n", ",1.5\r\n", "bulk", "array", "map", "attribute"}
	if depth == 0 {
		kinds = kinds[:11]
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "bulk":
		text := anyBytes().Draw(t, "text")
		return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
	case "array", "map", "attribute":
		n := rapid.IntRange(1, 4).Draw(t, "elements")
		head, elems := fmt.Sprintf("*%d\r\n", n), n
		switch kind {
		case "map":
			head, elems = fmt.Sprintf("%%%d\r\n", n), 2*n
		case "attribute":
			head, elems = fmt.Sprintf("|%d\r\n", n), 2*n+1
		}
		for range elems {
			head += anyReply(t, depth-1)
		}
		return head
	default:
		return kind
	}
}

func anyPush(t *rapid.T) string {
	key := anyBytes().Draw(t, "key")
	return fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key)
}

// Replies are read one by one, pushes are skipped, and what follows is left to be read by others.
func TestReadReplyProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var stream []byte
		pushes := func() {
			for range rapid.IntRange(0, 2).Draw(rt, "pushes") {
				stream = append(stream, anyPush(rt)...)
			}
		}
		var replies []string
		for range rapid.IntRange(1, 5).Draw(rt, "replies") {
			pushes()
			replies = append(replies, anyReply(rt, 3))
			stream = append(stream, replies[len(replies)-1]...)
		}
		end := len(stream)
		pushes()
		r := &inPieces{rt, stream}
		for i, want := range replies {
			raw, head, err := resp.ReadReply(r, 1<<20)
			if err != nil || string(raw) != want || want[0] != '|' && head.Type != want[0] {
				rt.Fatalf("reply %d: %q, %q, %v; want %q", i, raw, head.Type, err, want)
			}
		}
		if !bytes.Equal(r.left, stream[end:]) {
			rt.Fatalf("%q is left, want %q", r.left, stream[end:])
		}
	})
}

func TestReadReplyIsBounded(t *testing.T) {
	many := strings.Repeat("x", 10000)
	for _, endless := range []string{"+" + many, "$9223372\r\n" + many} {
		r := strings.NewReader(endless)
		if raw, _, err := resp.ReadReply(r, 1000); err == nil || errors.Is(err, io.EOF) ||
			len(raw) > 2000 {
			t.Errorf("%.10q: %d bytes, %v", endless, len(raw), err)
		}
	}
	long := ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1000000\r\n" + strings.Repeat("x", 1000000) +
		"\r\n+OK\r\n"
	if raw, _, err := resp.ReadReply(strings.NewReader(long), 1000); err != nil ||
		string(raw) != "+OK\r\n" {
		t.Errorf("behind a long push: %q, %v", raw, err)
	}
	for _, cut := range []string{"", "+O", "$3\r\nab", ">1\r\n+x\r\n", ">2\r\n+x\r\n"} {
		if raw, _, err := resp.ReadReply(iotest.OneByteReader(strings.NewReader(cut)),
			1000); !errors.Is(err, io.EOF) {
			t.Errorf("%q: %q, %v", cut, raw, err)
		}
	}
}
