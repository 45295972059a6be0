package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"testing"

	"pgregory.net/rapid"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/wire"
)

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
		nc.Write(wire.Append(nil, "CLUSTER", "KEYSLOT", string(key)))
		raw, err := wire.ReadReply(in, wire.RESP2)
		if err != nil {
			return err
		}
		if want := fmt.Sprintf(":%d\r\n", Slot(key)); raw != want {
			return fmt.Errorf("%q: %q, not %q", key, want, raw)
		}
		return nil
	}
	for _, key := range []string{"", "{", "}", "{}", "{}x", "}{", "a}b", "x{y}z", "{a}{b}", "{{a}}",
		"{a", "a{}b{c}", "foo{{bar}}zap", "\x00{\xff}\r\n"} {
		if err := same([]byte(key)); err != nil {
			t.Error(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(rapid.SampledFrom([][]byte{{'{'}, {'}'}, {}, {0}}),
			rapid.SliceOfN(rapid.Byte(), 0, 4))
		key := bytes.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "key"), nil)
		if err := same(key); err != nil {
			t.Fatal(err)
		}
	})
}
