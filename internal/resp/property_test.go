//go:build !race

package resp_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockproxy/internal/resp"
)

// chunks cuts b at random places; some pieces are empty.
func chunks(t *rapid.T, b []byte) (cut [][]byte) {
	for rest := b; len(rest) > 0; {
		size := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, len(rest)))
		n := min(len(rest), size.Draw(t, "chunk"))
		cut = append(cut, rest[:n])
		rest = rest[n:]
	}
	return cut
}

// anyBytes are arguments and bulks: short ones, with the protocol's own bytes often in them, and
// now and then long ones.
func anyBytes() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOf(rapid.RuneFrom([]rune("\r\n$*:+-_>|09aé\x00"))),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(0, 5000), func(n int) string {
			return strings.Repeat("\r\n*1", n/4)
		}),
	)
}

// anyRequest is one of the ways to send args.
func anyRequest(t *rapid.T) (raw []byte, args []string) {
	switch rapid.IntRange(0, 5).Draw(t, "form") {
	case 0: // what Redis ignores
		return []byte(rapid.SampledFrom([]string{"\r\n", "\n", " \r\n", "*0\r\n", "*-1\r\n",
			"*-7\r\n"}).Draw(t, "nothing")), nil
	case 1: // a line, every argument quoted in full
		args = rapid.SliceOfN(anyBytes(), 1, 5).Draw(t, "args")
		for _, arg := range args {
			raw = append(raw, '"')
			for _, c := range []byte(arg) {
				raw = fmt.Appendf(raw, `\x%02x`, c)
			}
			raw = append(raw, "\" "...)
		}
		return append(raw, rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")...), args
	}
	args = rapid.SliceOfN(anyBytes(), 1, 8).Draw(t, "args")
	return resp.AppendCommand(nil, args...), args
}

func TestFramerProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var in []byte
		var want []request
		for range rapid.IntRange(0, 6).Draw(rt, "requests") {
			raw, args := anyRequest(rt)
			if raw[0] == '"' && len(raw) > resp.MaxInlineLen {
				continue // a line this long is refused
			}
			in = append(in, raw...)
			want = append(want, request{string(raw), args, raw[0] != '*'})
		}
		reqs, left, err := frame(t, resp.Limits{}, chunks(rt, in)...)
		if err != nil || len(left) > 0 || !reflect.DeepEqual(reqs, want) {
			rt.Fatalf("got %+v\nleft %q, error %v\nwant %+v", reqs, left, err, want)
		}
	})
}

// However the bytes come, and wherever streaming begins, all are passed on once and in order.
func TestFramerStreamProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var in []byte
		for range rapid.IntRange(1, 4).Draw(rt, "requests") {
			in = resp.AppendCommand(in, rapid.SliceOfN(anyBytes(), 1, 8).Draw(rt, "args")...)
		}
		n := rapid.IntRange(1, 2000).Draw(rt, "bytes at a time")
		at := rapid.IntRange(0, len(in)).Draw(rt, "streamed from")
		passed, _, err := stream(t, in, n, at)
		if err != nil || !bytes.Equal(passed, in) {
			rt.Fatalf("got %q, error %v; want %q", passed, err, in)
		}
	})
}

// A node is a reply to be encoded.
type node struct {
	kind  byte
	text  string
	elems []node
	attr  []node // of the attribute before it
}

func (n node) encode(out []byte) []byte {
	if n.attr != nil {
		out = fmt.Appendf(out, "|%d\r\n", len(n.attr)/2)
		for _, a := range n.attr {
			out = a.encode(out)
		}
	}
	switch n.kind {
	case '$', '=', '!':
		return fmt.Appendf(out, "%c%d\r\n%s\r\n", n.kind, len(n.text), n.text)
	case '*', '~', '>', '%':
		count := len(n.elems)
		if n.kind == '%' {
			count /= 2
		}
		out = fmt.Appendf(out, "%c%d\r\n", n.kind, count)
		for _, e := range n.elems {
			out = e.encode(out)
		}
		return out
	}
	return fmt.Appendf(out, "%c%s\r\n", n.kind, n.text)
}

// head is what a Scanner should say of n.
func (n node) head() (want reply) {
	want = reply{raw: string(n.encode(nil)), kind: n.kind, line: n.text}
	switch n.kind {
	case '$', '=', '!':
		want.line = fmt.Sprint(len(n.text))
	case '*', '~', '>', '%':
		want.line = fmt.Sprint(len(n.elems))
		if n.kind == '%' {
			want.line = fmt.Sprint(len(n.elems) / 2)
		}
		for i, e := range n.elems {
			if e.kind == ':' {
				fmt.Sscan(e.text, &want.last)
			}
			if i == 0 && strings.IndexByte("$=!", e.kind) >= 0 {
				want.elem = e.text[:min(len(e.text), 64)]
			}
		}
	}
	return want
}

func anyNode(t *rapid.T, depth int) (n node) {
	if rapid.IntRange(0, 9).Draw(t, "attribute") == 0 {
		n.attr = append(n.attr, anyNodes(t, depth+1, 2)...)
		if len(n.attr) == 0 {
			n.attr = []node{}
		}
	}
	kinds := "+-:$$=!_#,(*~>%"
	if depth > 3 {
		kinds = kinds[:11]
	}
	n.kind = rapid.SampledFrom([]byte(kinds)).Draw(t, "kind")
	switch n.kind {
	case '+', '-', '#', ',', '(':
		n.text = rapid.StringMatching(`[ -~]{0,60}`).Draw(t, "text")
	case ':':
		n.text = fmt.Sprint(rapid.Int64().Draw(t, "number"))
	case '$', '=', '!':
		n.text = anyBytes().Draw(t, "bulk")
	case '*', '~', '>':
		n.elems = anyNodes(t, depth+1, 1)
	case '%':
		n.elems = anyNodes(t, depth+1, 2)
	}
	return n
}

// anyNodes is a multiple of n of them.
func anyNodes(t *rapid.T, depth, n int) (nodes []node) {
	for range n * rapid.IntRange(0, 3).Draw(t, "elements") {
		nodes = append(nodes, anyNode(t, depth))
	}
	return nodes
}

// hasPush reports whether there is a push within n.
func (n node) hasPush() bool {
	return slices.ContainsFunc(append(n.attr[:len(n.attr):len(n.attr)], n.elems...),
		func(inner node) bool { return inner.kind == '>' || inner.hasPush() })
}

func TestScannerProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var in []byte
		var want []reply
		known := -1 // how many replies come before one with a push within; -1 if there is none
		for i := range rapid.IntRange(1, 4).Draw(rt, "replies") {
			n := anyNode(rt, 0)
			in = n.encode(in)
			want = append(want, n.head())
			if n.hasPush() && known < 0 {
				known = i
			}
		}
		cut := chunks(rt, in)
		got, left, err := scanBy(t, (*resp.Scanner).ScanWithPushes, cut...)
		if err != nil || len(left) > 0 || !reflect.DeepEqual(got, want) {
			rt.Fatalf("got %+v\nleft %q, error %v\nwant %+v", got, left, err, want)
		}
		got, left, err = scan(t, cut...)
		switch {
		case known >= 0 && (err != resp.ErrPushWithin || !slices.Equal(got, want[:known])):
			rt.Fatalf("got %+v\nerror %v\nwant %+v", got, err, want[:known])
		case known < 0 && (err != nil || len(left) > 0 || !reflect.DeepEqual(got, want)):
			rt.Fatalf("got %+v\nleft %q, error %v\nwant %+v", got, left, err, want)
		}
	})
}

// value is what ParseValue should make of n, without attributes.
func (n node) value() resp.Value {
	v := resp.Value{Type: n.kind}
	switch n.kind {
	case '_':
	case ':':
		fmt.Sscan(n.text, &v.Int)
	case '*', '~', '>', '%':
		for _, e := range n.elems {
			v.Elems = append(v.Elems, e.value())
		}
	default:
		v.Text = []byte(n.text)
	}
	return v
}

func (n node) hasAttribute() bool {
	for _, e := range n.elems {
		if e.hasAttribute() {
			return true
		}
	}
	return n.attr != nil
}

func TestParseValueProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := anyNode(rt, 0)
		raw := n.encode(nil)
		got, err := resp.ParseValue(raw)
		switch {
		case n.hasAttribute():
			if err == nil {
				rt.Fatalf("%q: an attribute is not decoded, so it must not pass", raw)
			}
		case err != nil || !reflect.DeepEqual(got, n.value()):
			rt.Fatalf("%q: got %+v, %v; want %+v", raw, got, err, n.value())
		}
		// A part of it is no reply, and no part makes it panic.
		if cut := rapid.IntRange(0, len(raw)-1).Draw(rt, "cut"); cut < len(raw) {
			if v, err := resp.ParseValue(raw[:cut]); err == nil {
				rt.Fatalf("%q, the beginning of %q: got %+v", raw[:cut], raw, v)
			}
		}
	})
}
