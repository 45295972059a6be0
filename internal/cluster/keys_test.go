package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
)

// asker asks a redis-server and decodes its replies.
func asker(t *testing.T) func(args ...string) resp.Value {
	nc, err := net.Dial("tcp", testredis.Start(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	in := bufio.NewReader(nc)
	return func(args ...string) resp.Value {
		t.Helper()
		nc.Write(resp.AppendCommand(nil, args...))
		raw, _, err := resp.ReadReply(in, maxMap)
		if err != nil {
			t.Fatal(err)
		}
		v, err := resp.ParseValue(raw)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// The table says of each command of the installed server what that says itself.
func TestKeysOfAllCommands(t *testing.T) {
	ask := asker(t)
	check := func(v resp.Value) {
		name := strings.ToLower(string(v.Elems[0].Text))
		var flags []string
		for _, f := range v.Elems[2].Elems {
			flags = append(flags, string(f.Text))
		}
		first, last, step := int(v.Elems[3].Int), int(v.Elems[4].Int), int(v.Elems[5].Int)
		rule, known := keyTable[name]
		switch {
		case slices.Contains(flags, "movablekeys"):
			if rule.find == nil {
				t.Errorf("%s: its keys must be found by its arguments", name)
			}
		case first == 0 && known:
			t.Errorf("%s: has no keys", name)
		case first != 0 && (rule.first != first || rule.last != last || rule.step != step):
			t.Errorf("%s: %d %d %d, not %d %d %d", name, rule.first, rule.last, rule.step, first, last, step)
		}
	}
	for _, v := range ask("COMMAND").Elems {
		name := string(v.Elems[0].Text)
		if name == "pfdebug" { // for Redis's own tests
			continue
		}
		check(v)
		if len(v.Elems) > 9 {
			for _, sub := range v.Elems[9].Elems {
				check(sub)
			}
		}
	}
}

// Calls whose keys aren't at fixed places have them where the server says.
func TestKeysOfCalls(t *testing.T) {
	ask := asker(t)
	for _, call := range []string{
		"EVAL script 2 a b c", "EVALSHA sha 1 a b", "FCALL f 3 a b c d", "EVAL_RO script 1 a", "EVALSHA_RO sha 2 a b", "FCALL_RO f 1 a",
		"ZUNIONSTORE dest 2 a b WEIGHTS 1 2", "ZINTERSTORE dest 1 a AGGREGATE max", "ZDIFFSTORE dest 2 a b", "ZUNION 2 a b", "ZINTER 3 a b c WITHSCORES",
		"ZDIFF 1 a", "ZINTERCARD 2 a b LIMIT 1", "SINTERCARD 2 a b", "LMPOP 2 a b LEFT", "ZMPOP 1 a MIN", "BLMPOP 0 2 a b LEFT", "BZMPOP 0 1 a MIN",
		"XREAD COUNT 2 STREAMS a b 0 0", "XREAD STREAMS streams 0", "XREADGROUP GROUP streams streams STREAMS a b > >", "XREADGROUP GROUP g c COUNT 1 NOACK STREAMS a >",
		"SORT a", "SORT a BY x_* LIMIT 0 5 GET y_* GET # DESC ALPHA STORE dest", "SORT a STORE x STORE y", "SORT a BY STORE GET STORE STORE z", "SORT_RO a",
		"GEORADIUS a 1 2 3 km STORE dest", "GEORADIUS a 1 2 3 km STOREDIST dest COUNT 2", "GEORADIUSBYMEMBER a m 3 km STORE x STOREDIST y", "GEORADIUS a 1 2 3 km",
		"MIGRATE host 1 a 0 100 COPY", "MSETNX a 1 b 2", "BITOP AND dest a b", "BLPOP a b c 0", "COPY a b DB 1", "OBJECT ENCODING a", "MEMORY USAGE a SAMPLES 3", "XGROUP CREATE a g $",
		"SMOVE a b m", "LCS a b", "RENAME a b", "BLMOVE a b LEFT LEFT 0", "PFMERGE a b c", "SINTERSTORE a b c", "SET a b", "MGET a b c", "HELLO",
	} {
		words := strings.Fields(call)
		var want []string
		if v := ask(append([]string{"COMMAND", "GETKEYS"}, words...)...); !v.IsError() {
			for _, key := range v.Elems {
				want = append(want, string(key.Text))
			}
		}
		args := make([][]byte, len(words))
		for i, w := range words {
			args[i] = []byte(w)
		}
		var got []string
		for _, i := range lookup(args).keys.positions(args, nil) {
			got = append(got, words[i])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
			t.Errorf("%s: %q, not %q", call, got, want)
		}
	}
}

// Slots are Redis's own, for keys with braces of all kinds.
func TestSlotsAreRedisOwn(t *testing.T) {
	node := testredis.Start(t, "--cluster-enabled", "yes")
	nc, err := net.Dial("tcp", node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	same := func(key []byte) error {
		nc.Write(resp.AppendCommand(nil, []byte("CLUSTER"), []byte("KEYSLOT"), key))
		raw, _, err := resp.ReadReply(in, maxMap)
		if err != nil {
			return err
		}
		if want := fmt.Sprintf(":%d\r\n", Slot(key)); string(raw) != want {
			return fmt.Errorf("%q: %q, not %q", key, want, raw)
		}
		return nil
	}
	for _, key := range []string{"", "{", "}", "{}", "{}x", "}{", "a}b", "x{y}z", "{a}{b}", "{{a}}", "{a", "a{}b{c}", "foo{{bar}}zap", "\x00{\xff}\r\n"} {
		if err := same([]byte(key)); err != nil {
			t.Error(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(rapid.SampledFrom([][]byte{{'{'}, {'}'}, {}, {0}}), rapid.SliceOfN(rapid.Byte(), 0, 4))
		key := bytes.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "key"), nil)
		if err := same(key); err != nil {
			t.Fatal(err)
		}
	})
}
