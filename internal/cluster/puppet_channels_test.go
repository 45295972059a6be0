package cluster

import (
	"testing"
	"time"
)

// lowestAt is a map in which b serves the slot of "other", and the node at addr the lowest slot.
func lowestAt(addr string) *slotMap {
	m := allAt("a:1").with(Slot([]byte("other")), "b:1")
	if addr == "b:1" {
		m.masters = []string{"b:1", "a:1"}
		for i := range Slots {
			m.owner.set(i, 3-m.owner.of(i))
		}
	}
	return m
}

// When the lowest slot moves, the new node of all channels has copies of the subscriptions before it
// is published to, so PUBLISH counts them. The client hears each message once.
func TestPublishAfterTheLowestSlotHasMoved(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.cl.update(lowestAt("a:1"), 1, time.Now())
	p.send("HELLO 3")
	hello := p.conn.nodes.defaultNode().addr
	n := p.at(hello)
	n.hears("HELLO 3")
	n.says("+OK")
	p.replies("+OK")
	nodes := map[string]*puppet{hello: n}
	at := func(name string) *puppet {
		if nodes[name] == nil {
			nodes[name] = p.at(name)
		}
		return nodes[name]
	}
	confirm := func(kind, channel, number string) []string {
		return append([]string{">3"}, confirmation(kind, channel, number)[1:]...)
	}
	p.send("SUBSCRIBE c")
	a := at("a:1")
	a.hears("SUBSCRIBE c")
	a.says(confirm("subscribe", "c", "1")...)
	p.replies(confirm("subscribe", "c", "1")...)

	p.cl.update(lowestAt("b:1"), 2, time.Now())
	b := at("b:1")
	b.hears("SUBSCRIBE c")
	p.send("PUBLISH c early", "PUBSUB NUMSUB c")
	a.hears("PUBLISH c early", "PUBSUB NUMSUB c")
	a.says(":1", "+numsub")
	p.replies(":1", "+numsub")
	b.says(confirm("subscribe", "c", "1")...)
	p.await(func() bool { return *p.cl.channels.Load() == "b:1" })
	p.send("PUBLISH c late")
	b.hears("PUBLISH c late")
	b.says(">3", "$7", "message", "$1", "c", "$4", "late", ":1")
	p.replies(":1")
	a.says(">3", "$7", "message", "$1", "c", "$4", "late")
	p.replies(">3", "$7", "message", "$1", "c", "$4", "late")

	// Later subscriptions, and the end of all, are for both.
	p.send("PSUBSCRIBE d*", "UNSUBSCRIBE")
	b.hears("PSUBSCRIBE d*", "UNSUBSCRIBE c")
	a.hears("PSUBSCRIBE d*", "UNSUBSCRIBE")
}

// What ends a subscription goes where that was sent, also if it is not confirmed yet.
func TestUnsubscribeWhileTheLowestSlotMoves(t *testing.T) {
	p := twoNodes(t)
	p.send("SUBSCRIBE c")
	a := p.at("a:1")
	a.hears("SUBSCRIBE c")
	p.cl.slots.Store(lowestAt("b:1"))
	p.send("UNSUBSCRIBE c")
	a.hears("UNSUBSCRIBE c")
}

// In protocol 2 no node has a subscription before all earlier requests are answered. The node would
// refuse one that is sent to it after a redirection.
func TestRedirectionInFrontOfASubscription(t *testing.T) {
	p := twoNodes(t)
	p.send("GET k", "SSUBSCRIBE other")
	a := p.at("a:1")
	a.hears("GET k")
	a.says(moveK)
	b := p.at("b:1")
	b.hears("GET k")
	b.says("$-1")
	b.hears("SSUBSCRIBE other")
	b.says(confirmation("ssubscribe", "other", "1")...)
	p.replies(append([]string{"$-1"}, confirmation("ssubscribe", "other", "1")...)...)
}

// No node gets a copy of a subscription that was refused.
func TestRefusedSubscriptionHasNoCopies(t *testing.T) {
	p := twoNodes(t)
	p.send("SUBSCRIBE c")
	a := p.at("a:1")
	a.hears("SUBSCRIBE c")
	a.says("-NOPERM no")
	p.replies("-NOPERM no")
	p.cl.update(lowestAt("b:1"), 2, time.Now())
	p.send("PUBLISH c x")
	p.at("b:1").hears("PUBLISH c x")
}
