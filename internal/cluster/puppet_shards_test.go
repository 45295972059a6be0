package cluster

import (
	"fmt"
	"testing"
	"time"
)

var (
	subscribedK   = []string{"*3", "$10", "ssubscribe", "$1", "k", ":1"}
	unsubscribedK = []string{"*3", "$12", "sunsubscribe", "$1", "k", ":0"}
	moveK         = "-MOVED " + slotK + " b:1"
)

// subscribedTo is puppets of which a has a client's subscription to k.
func subscribedTo(t *testing.T) (p *puppets, a *puppet) {
	p = newPuppets(t, "a:1", "b:1")
	p.send("SSUBSCRIBE k")
	a = p.at("a:1")
	a.hears("SSUBSCRIBE k")
	a.says(subscribedK...)
	p.replies(subscribedK...)
	return p, a
}

// A node drops a sharded channel while it has something else to answer.
func TestShardMovesBeforeAnAnswer(t *testing.T) {
	p, a := subscribedTo(t)
	p.send("PING", "SSUBSCRIBE other")
	a.hears("PING", "SSUBSCRIBE other")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "b:1"))
	a.says(unsubscribedK...)
	a.says("*2", "$4", "pong", "$0", "", "*3", "$10", "ssubscribe", "$5", "other", ":1")
	p.replies("*2", "$4", "pong", "$0", "", "*3", "$10", "ssubscribe", "$5", "other", ":2")
}

// A client that unsubscribes from a sharded channel whose slot has just moved is not subscribed
// again.
func TestUnsubscribeWhileAShardMoves(t *testing.T) {
	for range 1000 {
		p, a := subscribedTo(t)
		p.knows("b:1")
		a.says(unsubscribedK...)
		p.awaitDropped("k")
		p.send("SUNSUBSCRIBE k", "PING")
		b := p.at("b:1")
		if b.next() == "SSUBSCRIBE k" {
			continue // it was subscribed again before
		}
		b.says(unsubscribedK...)
		p.replies(unsubscribedK...)
		b.hears("PING")
		p.afterDelays(20)
		p.send("GET k")
		b.hears("GET k")
		return
	}
	t.Error("the machine was never quick enough")
}

// awaitDropped waits until the Conn knows that a node has dropped a channel.
func (p *puppets) awaitDropped(channel string) {
	p.t.Helper()
	encoded := fmt.Sprintf("$%d\r\n%s\r\n", len(channel), channel)
	p.await(func() bool {
		n, wanted := p.conn.subs.shards[encoded]
		return wanted && n == nil
	})
}

// knows has the Conn apply a map in which one node serves all slots, and do no more.
func (p *puppets) knows(addr string) {
	p.cl.slots.Store(allAt(addr))
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	p.conn.nodes.applyMap(p.cl.slots.Load())
}

// A channel that a node drops is not the one that the client unsubscribes from meanwhile.
func TestShardMovesBeforeAnotherIsUnsubscribed(t *testing.T) {
	p, a := subscribedTo(t)
	p.send("SSUBSCRIBE other")
	a.hears("SSUBSCRIBE other")
	a.says("*3", "$10", "ssubscribe", "$5", "other", ":2")
	p.replies("*3", "$10", "ssubscribe", "$5", "other", ":2")
	p.send("SUNSUBSCRIBE other")
	a.hears("SUNSUBSCRIBE other")
	p.cl.update(allAt("a:1").with(Slot([]byte("k")), "b:1"), 1, time.Now())
	a.says("*3", "$12", "sunsubscribe", "$1", "k", ":1")
	a.says("*3", "$12", "sunsubscribe", "$5", "other", ":0")
	p.replies("*3", "$12", "sunsubscribe", "$5", "other", ":1")
	p.at("b:1").hears("SSUBSCRIBE k")
}

// What a node says when it drops a sharded channel looks like the answer to SUNSUBSCRIBE. Its MOVED
// behind that is not the answer to what follows.
func TestShardMovesBeforeAnUnsubscribe(t *testing.T) {
	p, a := subscribedTo(t)
	p.send("SUNSUBSCRIBE k")
	a.hears("SUNSUBSCRIBE k")
	a.says(append(unsubscribedK, moveK)...)
	p.replies(unsubscribedK...)
	p.send("PING", "GET k")
	a.hears("PING", "GET k")
	a.says("+PONG", moveK)
	b := p.at("b:1")
	b.hears("GET k")
	b.says("$-1")
	p.replies("+PONG", "$-1")
}

// From Redis 8.6 on, a node that has dropped a sharded channel confirms a SUNSUBSCRIBE of it as well.
func TestAShardIsDroppedAndUnsubscribed(t *testing.T) {
	p, a := subscribedTo(t)
	p.send("SUNSUBSCRIBE k")
	a.hears("SUNSUBSCRIBE k")
	a.says(unsubscribedK...)
	a.says(unsubscribedK...)
	p.replies(unsubscribedK...)
	p.send("PING")
	a.hears("PING")
	a.says("+PONG")
	p.replies("+PONG")
}

// The same while the client is subscribed to another channel, which stays as it is.
func TestOneOfTwoShardsIsDroppedAndUnsubscribed(t *testing.T) {
	p, a := subscribedTo(t)
	p.send("SSUBSCRIBE other")
	a.hears("SSUBSCRIBE other")
	a.says("*3", "$10", "ssubscribe", "$5", "other", ":2")
	p.replies("*3", "$10", "ssubscribe", "$5", "other", ":2")
	p.send("SUNSUBSCRIBE k", "PING")
	a.hears("SUNSUBSCRIBE k")
	dropped := []string{"*3", "$12", "sunsubscribe", "$1", "k", ":1"}
	message := []string{"*3", "$8", "smessage", "$5", "other", "$1", "x"}
	a.says(dropped...)
	a.says(append(dropped, message...)...)
	p.replies(append(dropped, message...)...)
	a.hears("PING")
	a.says("*2", "$4", "pong", "$0", "")
	p.replies("*2", "$4", "pong", "$0", "")
}

// subscribedToTwo is subscribedTo with another channel in the same slot.
func subscribedToTwo(t *testing.T) (p *puppets, a *puppet) {
	p, a = subscribedTo(t)
	p.send("SSUBSCRIBE {k}2")
	a.hears("SSUBSCRIBE {k}2")
	a.says(confirmation("ssubscribe", "{k}2", "2")...)
	p.replies(confirmation("ssubscribe", "{k}2", "2")...)
	return p, a
}

// A node that is told again that a slot is its own drops the channels, and confirms a SUNSUBSCRIBE
// of each as well. No confirmation is the answer to what follows.
func TestTwoShardsAreDroppedAndUnsubscribed(t *testing.T) {
	p, a := subscribedToTwo(t)
	p.send("SUNSUBSCRIBE k {k}2")
	a.hears("SUNSUBSCRIBE k {k}2")
	first := confirmation("sunsubscribe", "k", "1")
	second := confirmation("sunsubscribe", "{k}2", "0")
	a.says(append(first, second...)...)
	p.replies(append(first, second...)...)
	p.send("GET k")
	a.hears("GET k")
	a.says(unsubscribedK...)
	a.says(append(second, "$-1")...)
	p.replies("$-1")
}

// A channel that a node drops right behind a SUNSUBSCRIBE of another one in its slot is subscribed
// to again.
func TestShardIsDroppedBehindAnUnsubscribe(t *testing.T) {
	p, a := subscribedToTwo(t)
	p.send("SUNSUBSCRIBE k")
	a.hears("SUNSUBSCRIBE k")
	a.says(confirmation("sunsubscribe", "k", "1")...)
	p.replies(confirmation("sunsubscribe", "k", "1")...)
	p.cl.update(allAt("a:1").with(Slot([]byte("k")), "b:1"), 1, time.Now())
	a.says(confirmation("sunsubscribe", "{k}2", "0")...)
	p.at("b:1").hears("SSUBSCRIBE {k}2")
}

// From Redis 8.6 on, any node confirms SUNSUBSCRIBE. It goes where the channel is: where SSUBSCRIBE was
// redirected, also if the map names another node again.
func TestUnsubscribeBehindARedirection(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("SSUBSCRIBE k", "SUNSUBSCRIBE k")
	a := p.at("a:1")
	a.hears("SSUBSCRIBE k")
	a.says(moveK)
	b := p.at("b:1")
	b.hears("SSUBSCRIBE k")
	p.knows("a:1")
	b.says(subscribedK...)
	b.hears("SUNSUBSCRIBE k")
	b.says(unsubscribedK...)
	p.replies(append(subscribedK, unsubscribedK...)...)
}

// SUNSUBSCRIBE without channels is about all of them, also one that is being subscribed to.
func TestUnsubscribeFromAllShards(t *testing.T) {
	p := newPuppets(t, "a:1")
	p.send("SSUBSCRIBE k", "SUNSUBSCRIBE", "PING")
	a := p.at("a:1")
	a.hears("SSUBSCRIBE k")
	a.says(subscribedK...)
	a.hears("SUNSUBSCRIBE k")
	a.says(unsubscribedK...)
	a.hears("PING")
	a.says("+PONG")
	p.replies(append(append(subscribedK, unsubscribedK...), "+PONG")...)
}

// A client that unsubscribes while it is being subscribed again is not subscribed in the end. Since
// any node may confirm SUNSUBSCRIBE, that waits until the channel is where it belongs.
func TestUnsubscribeWhileAShardIsSubscribedAgain(t *testing.T) {
	p, a := subscribedTo(t)
	p.cl.update(allAt("a:1").with(Slot([]byte("k")), "b:1"), 1, time.Now())
	a.says(unsubscribedK...)
	b := p.at("b:1")
	b.hears("SSUBSCRIBE k")
	p.send("SUNSUBSCRIBE k")
	b.says("-MOVED " + slotK + " a:1")
	a.hears("SSUBSCRIBE k")
	a.says(subscribedK...)
	a.hears("SUNSUBSCRIBE k")
	a.says(unsubscribedK...)
	p.replies(unsubscribedK...)
}

// Nor is a client that asks for RESET meanwhile.
func TestResetWhileAShardIsSubscribedAgain(t *testing.T) {
	p, a := subscribedTo(t)
	p.cl.update(allAt("a:1").with(Slot([]byte("k")), "b:1"), 1, time.Now())
	a.says(unsubscribedK...)
	b := p.at("b:1")
	for range 7 { // then the next try is late
		b.hears("SSUBSCRIBE k")
		b.says("-TRYAGAIN later")
	}
	p.awaitHeld()
	p.send("RESET")
	p.awaitWaiting()
	b.hears("SSUBSCRIBE k")
	b.says(subscribedK...)
	a.hears("RESET")
	a.says("+RESET")
	b.hears("RESET")
	b.says("+RESET")
	p.replies("+RESET")
}

// The node of a MOVED that can answer either of two requests is left. What became of the second is
// not known.
func TestAnswerToUnsubscribeOrToTheNext(t *testing.T) {
	p, a := subscribedTo(t)
	p.send("SUNSUBSCRIBE k")
	a.hears("SUNSUBSCRIBE k")
	a.says(unsubscribedK...)
	p.replies(unsubscribedK...)
	p.send("GET k")
	a.hears("GET k")
	a.says(moveK)
	p.replies("-UPSTREAM a:1: sent true")
}

// An error behind some confirmations of a SUNSUBSCRIBE ends the connection.
func TestErrorAmongConfirmations(t *testing.T) {
	p, a := subscribedTo(t)
	p.send("SUNSUBSCRIBE k {k}2")
	a.hears("SUNSUBSCRIBE k {k}2")
	a.says(append(unsubscribedK, moveK)...)
	p.replies(unsubscribedK...)
	p.ends(errShard)
}

// A login does not end a subscription that has followed its slot to a node which the client has not
// used: that is logged in too, not connected to again.
func TestLoginAfterAShardHasMoved(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("HELLO 3")
	a := p.at("a:1")
	a.hears("HELLO 3")
	a.says("+OK")
	p.replies("+OK")
	p.send("SSUBSCRIBE k")
	a.hears("SSUBSCRIBE k")
	a.says(">3", "$10", "ssubscribe", "$1", "k", ":1")
	p.replies(">3", "$10", "ssubscribe", "$1", "k", ":1")
	p.cl.update(allAt("a:1").with(Slot([]byte("k")), "b:1"), 1, time.Now())
	a.says(">3", "$12", "sunsubscribe", "$1", "k", ":0")
	b := p.at("b:1")
	b.hears("SSUBSCRIBE k")
	b.says(">3", "$10", "ssubscribe", "$1", "k", ":1")
	p.send("AUTH ann pw")
	a.hears("AUTH ann pw")
	a.says("+OK")
	b.hears("AUTH ann pw")
	b.says("+OK")
	p.replies("+OK")
	b.says(">3", "$8", "smessage", "$1", "k", "$5", "hello")
	p.replies(">3", "$8", "smessage", "$1", "k", "$5", "hello")
}
