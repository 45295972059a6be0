package cluster

import (
	"strings"
	"testing"

	"lockproxy/internal/test/wire"
)

// A large request does not overtake earlier ones for its slot while the slot moves.
func TestOrderOfALargeRequest(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("SET k 1")
	a := p.at("a:1")
	a.hears("SET k 1")
	p.refreshed("b:1", false)
	large := strings.Repeat("v", 2*maxResent)
	raw := wire.Append(nil, "SET", "k", large)
	p.conn.Write(raw[:len(raw)-1])
	p.conn.Write(raw[len(raw)-1:])
	a.hears("PING")
	a.says("-MOVED "+slotK+" b:1", "+PONG")
	b := p.at("b:1")
	b.hears("SET k 1", "SET k "+large)
	b.says("+1", "+2")
	p.replies("+1", "+2")
}

// A request that is sent again does not get into a large one that its node is being sent.
func TestRetryBehindALargeRequest(t *testing.T) {
	p := newPuppets(t, "a:1")
	p.send("SET other 1")
	a := p.at("a:1")
	a.hears("SET other 1")
	large := strings.Repeat("v", 2*maxResent)
	raw := wire.Append(nil, "SET", "k", large)
	p.conn.Write(raw[:len(raw)-1])
	a.says("-TRYAGAIN")
	p.afterDelays(4)
	p.conn.Write(raw[len(raw)-1:])
	a.hears("SET k "+large, "SET other 1")
	a.says("+2", "+1")
	p.replies("+1", "+2")
}
