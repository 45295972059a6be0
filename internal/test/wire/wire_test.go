package wire_test

import (
	"bufio"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"lockproxy/internal/test/wire"
)

func read(raw string, p wire.Protocol) (string, wire.Value, error) {
	got, err := wire.ReadReply(bufio.NewReader(strings.NewReader(raw)), p)
	v, errOfValue := wire.ReadValue(bufio.NewReader(strings.NewReader(raw)), p)
	if !reflect.DeepEqual(err, errOfValue) {
		err = errors.Join(err, errOfValue)
	}
	return got, v, err
}

func TestReplies(t *testing.T) {
	one, a := wire.Value{Type: ':', Int: 1}, wire.Value{Type: '$', Text: "a"}
	for raw, want := range map[string]wire.Value{
		"+OK\r\n":                          {Type: '+', Text: "OK"},
		"-ERR no\r\n":                      {Type: '-', Text: "ERR no"},
		":-42\r\n":                         {Type: ':', Int: -42},
		":0\r\n":                           {Type: ':'},
		"$0\r\n\r\n":                       {Type: '$'},
		"$4\r\n\r\n+O\r\n":                 {Type: '$', Text: "\r\n+O"},
		"$-1\r\n":                          {Type: '_'},
		"*-1\r\n":                          {Type: '_'},
		"*0\r\n":                           {Type: '*'},
		"*2\r\n:1\r\n*1\r\n$1\r\na\r\n":    {Type: '*', Elems: []wire.Value{one, {Type: '*', Elems: []wire.Value{a}}}},
		"_\r\n":                            {Type: '_'},
		"#t\r\n":                           {Type: '#', Text: "t"},
		",-1.5e+30\r\n":                    {Type: ',', Text: "-1.5e+30"},
		",inf\r\n":                         {Type: ',', Text: "inf"},
		"(-12345678901234567890\r\n":       {Type: '(', Text: "-12345678901234567890"},
		"!5\r\nERR a\r\n":                  {Type: '!', Text: "ERR a"},
		"=5\r\ntxt:a\r\n":                  {Type: '=', Text: "txt:a"},
		"%1\r\n$1\r\na\r\n:1\r\n":          {Type: '%', Elems: []wire.Value{a, one}},
		"~1\r\n:1\r\n":                     {Type: '~', Elems: []wire.Value{one}},
		">2\r\n$1\r\na\r\n:1\r\n":          {Type: '>', Elems: []wire.Value{a, one}},
		"|1\r\n+ttl\r\n:9\r\n$1\r\na\r\n":  a,
		"*1\r\n|1\r\n+ttl\r\n:9\r\n:1\r\n": {Type: '*', Elems: []wire.Value{one}},
	} {
		got, v, err := read(raw+"+behind\r\n", wire.Either)
		if err != nil || got != raw || !reflect.DeepEqual(v, want) {
			t.Errorf("%q: %q, %+v, %v", raw, got, v, err)
		}
		for at := range raw { // cut short
			if got, _, err := read(raw[:at], wire.Either); err != io.EOF || got != raw[:at] {
				t.Errorf("%q: %q, %v", raw[:at], got, err)
			}
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, raw := range []string{
		"OK\r\n", "+OK\n", "\r\n", "\n", "+O\rK\r\n", "?1\r\n", "+a\r\r\n", "%\r\n", // lines
		":\r\n", ":+1\r\n", ":01\r\n", ":-0\r\n", ":1.0\r\n", ": 1\r\n", ":9223372036854775808\r\n", // numbers
		"$-2\r\n", "$03\r\nabc\r\n", "$3\r\nabcd\r\n", "$3\r\nab\r\n\r\n", "$3\r\nabc\n\r", // strings
		"*-2\r\n", "*+1\r\n:1\r\n", "%-1\r\n", "~-1\r\n", ">-1\r\n", "$?\r\n", "*?\r\n", // lengths
		"#true\r\n", "_x\r\n", ",1.\r\n", ",0x1\r\n", ",1_0\r\n", "(1.5\r\n", "=3\r\ntxt\r\n", // RESP3
		"*1\r\n>1\r\n+a\r\n", ">0\r\n", ">1\r\n:1\r\n", // pushes
		strings.Repeat("*1\r\n", 2000) + ":1\r\n",
	} {
		if got, _, err := read(raw, wire.Either); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%.60q: %.60q, %v", raw, got, err)
		}
	}
}

// Each protocol version has types, or nulls, that are not the other's.
func TestProtocols(t *testing.T) {
	for _, raw := range []string{"_\r\n", "#t\r\n", "%0\r\n", "~0\r\n", ">1\r\n+a\r\n", ",1\r\n", "(1\r\n",
		"!1\r\na\r\n", "=4\r\ntxt:\r\n", "|0\r\n:1\r\n", "*1\r\n_\r\n"} {
		if _, _, err := read(raw, wire.RESP2); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%q in RESP2: %v", raw, err)
		}
		if _, _, err := read(raw, wire.RESP3); err != nil {
			t.Errorf("%q in RESP3: %v", raw, err)
		}
	}
	for _, raw := range []string{"$-1\r\n", "*-1\r\n", "*1\r\n$-1\r\n"} {
		if _, _, err := read(raw, wire.RESP3); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%q in RESP3: %v", raw, err)
		}
		if _, _, err := read(raw, wire.RESP2); err != nil {
			t.Errorf("%q in RESP2: %v", raw, err)
		}
	}
}

// A server's own push within a reply counts as an element of that.
func TestPushesWithin(t *testing.T) {
	const raw = "*2\r\n>1\r\n+a\r\n:1\r\n"
	if got, v, err := read(raw+":2\r\n", wire.PushesWithin); got != raw || v.String() != "[[a] :1]" {
		t.Errorf("%q, %v, %v", got, v, err)
	}
}

func TestParse(t *testing.T) {
	if v, err := wire.Parse("*1\r\n:1\r\n"); err != nil || v.String() != "[:1]" {
		t.Errorf("%v, %v", v, err)
	}
	for _, raw := range []string{"", ":1", ":1\r\n:2\r\n"} {
		if v, err := wire.Parse(raw); err == nil {
			t.Errorf("%q: %v", raw, v)
		}
	}
}

func TestCommands(t *testing.T) {
	out := wire.Append(wire.Append(nil, "SET", "k", "a\r\nb"), "PING")
	const want = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n"
	if string(out) != want {
		t.Errorf("%q", out)
	}
	in := bufio.NewReader(strings.NewReader(string(out) + "*1\r\n:1\r\n*0\r\n+PING\r\n"))
	for _, want := range []string{"SET k a\r\nb", "PING"} {
		if words, err := wire.ReadCommand(in); err != nil || strings.Join(words, " ") != want {
			t.Errorf("%q, %v", words, err)
		}
	}
	for range 3 {
		if words, err := wire.ReadCommand(in); err == nil {
			t.Errorf("%q", words)
		}
	}
}
