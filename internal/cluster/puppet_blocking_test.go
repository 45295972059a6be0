package cluster

import (
	"strings"
	"testing"

	"lockproxy/internal/test/wire"
)

// twoNodes is puppets of which b serves the slot of the key "other", and a all others. a is the
// default node.
func twoNodes(t *testing.T) *puppets {
	p := newPuppets(t, "a:1", "b:1")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("other")), "b:1"))
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	p.conn.nodes.dflt = p.conn.nodes.at("a:1")
	return p
}

// awaitWaiting waits until a request is not sent before others are answered.
func (p *puppets) awaitWaiting() {
	p.t.Helper()
	p.await(func() bool { return p.conn.in.held })
}

// notAsked fails if a node was asked anything.
func (p *puppets) notAsked(name string) {
	p.t.Helper()
	if len(p.calls[name]) > 0 {
		p.t.Errorf("%s is asked", name)
	}
}

// What comes behind a command that blocks waits for it, whichever nodes they are for.
func TestBehindABlockingCommand(t *testing.T) {
	for _, blocking := range []string{
		"BLPOP k 0", "BRPOP k 0", "BLMOVE k k LEFT LEFT 0", "BRPOPLPUSH k k 0",
		"BLMPOP 0 1 k LEFT", "BZPOPMIN k 0", "BZPOPMAX k 0", "BZMPOP 0 1 k MIN",
		"XREAD BLOCK 0 STREAMS k $", "XREADGROUP GROUP g c BLOCK 0 STREAMS k >",
	} {
		for _, behind := range [][]string{
			{"SET other 1"}, {"BLPOP other 0"}, {"EVAL script 1 other"},
			{"MULTI", "SET other 1", "EXEC"}, {"SSUBSCRIBE other"}, {"MSET k 1 other 2"},
		} {
			t.Run(blocking+" "+behind[0], func(t *testing.T) {
				p := twoNodes(t)
				a := p.opens("a:1")
				p.send(append([]string{blocking}, behind...)...)
				a.hears(blocking)
				p.awaitWaiting()
				p.notAsked("b:1")
				a.says("+popped")
				if behind[0] == "MULTI" {
					a.hears("MULTI", "GET", "EXEC")
				}
				b := p.at("b:1")
				if behind[0] == "MSET k 1 other 2" {
					b.hears("MSET other 2")
				} else {
					b.hears(behind...)
				}
				p.replies("+popped")
			})
		}
	}
}

// WAIT and WAITAOF block too. They wait for the writes before them, which can be sent again, and
// would not be confirmed.
func TestAroundAWait(t *testing.T) {
	for _, wait := range []string{"WAIT 1 0", "WAITAOF 1 1 0"} {
		p := twoNodes(t)
		a := p.opens("a:1")
		p.send("SET k 1", wait, "SET other 1")
		a.hears("SET k 1")
		p.awaitWaiting()
		a.says("-ASK " + slotK + " b:1")
		b := p.at("b:1")
		b.hears("ASKING", "SET k 1")
		b.says("+OK", "+OK")
		p.replies("+OK")
		a.hears(wait)
		b.hears(wait)
		p.awaitWaiting()
		a.says(":1")
		b.says(":1")
		p.replies(":1")
		b.hears("SET other 1")
	}
	p := twoNodes(t)
	a := p.opens("a:1")
	p.send("SET k 1")
	a.hears("SET k 1")
	a.says("+OK")
	p.replies("+OK")
	p.send("LOCKPROXY.WAIT k 1 0", "SET other 1")
	a.hears("WAIT 1 0")
	p.awaitWaiting()
	p.notAsked("b:1")
	a.says(":1")
	p.replies(":1")
	p.at("b:1").hears("SET other 1")
}

// A large request behind a blocking one waits as well, and is streamed afterwards.
func TestLargeRequestBehindABlockingCommand(t *testing.T) {
	p := twoNodes(t)
	a := p.opens("a:1")
	p.send("BLPOP k 0")
	a.hears("BLPOP k 0")
	large := strings.Repeat("v", 2*maxResent)
	raw := wire.Append(nil, "SET", "other", large)
	if k, err := p.conn.TryWrite(raw[:len(raw)-1]); k != len(raw)-1 || err != nil {
		t.Fatal(k, err)
	}
	p.awaitWaiting()
	if k, err := p.conn.TryWrite(raw[len(raw)-1:]); k != 0 || err != nil {
		t.Errorf("%d, %v: more is taken than is kept", k, err)
	}
	p.notAsked("b:1")
	a.says("*-1")
	b := p.at("b:1")
	p.replies("*-1")
	go p.conn.Write(raw[len(raw)-1:]) // it waits until the node has taken enough
	b.hears("SET other " + large)
	b.says("+OK")
	p.replies("+OK")
}

// What waits behind a blocking command of a client that leaves is not run.
func TestClientLeavesWhileItBlocks(t *testing.T) {
	p := twoNodes(t)
	a := p.opens("a:1")
	p.send("GET other")
	b := p.at("b:1")
	b.hears("GET other")
	b.says("$-1")
	p.replies("$-1")
	p.send("BLPOP k 0", "BLPOP other 0", "SET other 1")
	a.hears("BLPOP k 0")
	p.awaitWaiting()
	p.conn.CloseWrite()
	for name, n := range map[string]*puppet{"a": a, "b": b} {
		if raw, err := n.in.ReadString('\n'); err == nil {
			t.Errorf("%s is asked %q", name, raw)
		}
	}
}

// What does not block runs side by side, also in front of what does.
func TestNodesWorkSideBySide(t *testing.T) {
	p := twoNodes(t)
	p.send("GET k", "XREAD COUNT 1 STREAMS k 0", "GET other", "BLPOP other 0")
	a, b := p.at("a:1"), p.at("b:1")
	b.hears("GET other", "BLPOP other 0")
	b.says("$-1", "*-1")
	a.hears("GET k", "XREAD COUNT 1 STREAMS k 0")
	a.says("$-1", "*-1")
	p.replies("$-1", "*-1", "$-1", "*-1")
}
