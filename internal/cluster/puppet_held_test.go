package cluster

import (
	"io"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/wire"
)

// manyKeys is a request of about 2 MiB, whose keys are at two nodes.
func manyKeys() []byte {
	args := append([]string{"EXISTS", "other"}, slices.Repeat([]string{"k"}, 300_000)...)
	return wire.Append(nil, args...)
}

// A request that is split is counted, as others are, until all nodes have answered, and none of its
// arguments is kept then.
func TestSplitRequestIsCounted(t *testing.T) {
	p := twoNodes(t)
	a := p.opens("a:1")
	raw := manyKeys()
	held := &p.conn.cluster.held
	p.conn.Write(raw[:len(raw)-1])
	if n := held.Load(); n < int64(len(raw))-maxResent+16*300_000 {
		t.Errorf("of the unfinished request %d bytes are counted", n)
	}
	p.conn.TryWrite(raw[len(raw)-1:])
	if n := held.Load(); n < int64(len(raw))-maxResent {
		t.Errorf("without an answer %d bytes are counted", n)
	}
	p.conn.mu.Lock()
	if n := cap(p.conn.in.keys); n > maxKeptArgs {
		t.Errorf("room for %d keys is kept", n)
	}
	p.conn.mu.Unlock()
	for _, n := range []*puppet{a, p.at("b:1")} {
		go io.Copy(io.Discard, n.nc) // ends with the connection
		n.says(":1")
	}
	p.replies(":2")
	if n := held.Load(); n != 0 {
		t.Errorf("at the end %d bytes are counted", n)
	}
}

// While too much is held, a large request is refused rather than split, and a pipeline waits. In a
// transaction, which must not go on without it, it is queued.
func TestSplitRequestWithoutRoom(t *testing.T) {
	p := twoNodes(t)
	a := p.opens("a:1")
	held := &p.conn.cluster.held
	raw := manyKeys()
	half := raw[:len(raw)-1]
	p.conn.Write(half)
	held.Add(maxHeld - held.Load())
	p.conn.Write(raw[len(raw)-1:])
	p.replies("-ERR " + errNoRoom.Error())
	if n := held.Load(); n >= maxHeld {
		t.Errorf("%d bytes are counted", n)
	}
	held.Add(maxHeld)
	value := strings.Repeat("v", maxResent/2)
	for range 2 {
		p.conn.TryWrite(wire.Append(nil, "SET", "k", value))
	}
	if n, err := p.conn.TryWrite(wire.Append(nil, "PING")); n != 0 || err != nil {
		t.Errorf("more is taken: %d, %v", n, err)
	}
	go io.Copy(io.Discard, a.nc) // ends with the connection
	a.says("+1", "+2")
	p.replies("+1", "+2")
	if n, err := p.conn.TryWrite(wire.Append(nil, "PING")); n == 0 || err != nil {
		t.Errorf("nothing is taken: %d, %v", n, err)
	}
}
