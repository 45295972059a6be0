package cluster

import (
	"strconv"
	"testing"
)

// confirmation is the lines of a confirmation in protocol 2.
func confirmation(kind, channel, number string) []string {
	return []string{"*3", "$" + strconv.Itoa(len(kind)), kind, "$" + strconv.Itoa(len(channel)),
		channel, ":" + number}
}

// The numbers in confirmations of sharded channels are in the order of the requests, whichever node
// confirms first.
func TestNumbersOfShardedChannels(t *testing.T) {
	p := twoNodes(t)
	p.send("SSUBSCRIBE k", "SSUBSCRIBE other {other}2")
	a, b := p.at("a:1"), p.at("b:1")
	b.hears("SSUBSCRIBE other {other}2")
	for _, c := range [][]string{{"ssubscribe", "other", "1"}, {"ssubscribe", "{other}2", "2"},
		{"smessage", "{other}2", "0"}} {
		b.says(confirmation(c[0], c[1], c[2])...)
	}
	a.hears("SSUBSCRIBE k")
	a.says(confirmation("ssubscribe", "k", "1")...)
	p.replies(confirmation("ssubscribe", "k", "1")...)
	p.replies(confirmation("ssubscribe", "other", "2")...)
	p.replies(confirmation("ssubscribe", "{other}2", "3")...)
	p.replies(confirmation("smessage", "{other}2", "0")...)
	p.send("SUNSUBSCRIBE k", "SSUBSCRIBE other")
	b.hears("SSUBSCRIBE other")
	b.says(confirmation("ssubscribe", "other", "2")...)
	a.hears("SUNSUBSCRIBE k")
	a.says(confirmation("sunsubscribe", "k", "0")...)
	p.replies(confirmation("sunsubscribe", "k", "2")...)
	p.replies(confirmation("ssubscribe", "other", "2")...)
	p.send("SUNSUBSCRIBE other", "SSUBSCRIBE none{k}")
	a.hears("SSUBSCRIBE none{k}")
	a.says("-NOPERM none{k}")
	b.hears("SUNSUBSCRIBE other")
	b.says(confirmation("sunsubscribe", "other", "1")...)
	p.replies(confirmation("sunsubscribe", "other", "1")...)
	p.replies("-NOPERM none{k}")
	p.send("SSUBSCRIBE k", "RESET", "SSUBSCRIBE k")
	a.hears("SSUBSCRIBE k")
	a.says(confirmation("ssubscribe", "k", "1")...)
	a.hears("RESET")
	a.says("+RESET")
	b.hears("RESET")
	b.says("+RESET")
	p.replies(confirmation("ssubscribe", "k", "2")...)
	p.replies("+RESET")
	a.hears("SSUBSCRIBE k")
	a.says(confirmation("ssubscribe", "k", "1")...)
	p.replies(confirmation("ssubscribe", "k", "1")...)
}

// A client whose SUNSUBSCRIBE is under way when its channel's slot moves is not subscribed again.
// If it was refused, the client is.
func TestUnsubscribeUnderWayWhenAShardMoves(t *testing.T) {
	for _, refused := range []bool{false, true} {
		p, a := subscribedTo(t)
		p.send("PING", "SUNSUBSCRIBE k")
		a.hears("PING", "SUNSUBSCRIBE k")
		p.refreshed("b:1", false)
		a.hears("PING")
		a.says(unsubscribedK...)
		p.awaitDropped("k")
		p.afterDelays(4) // it would be subscribed again by now
		if refused {
			a.says("*2", "$4", "pong", "$0", "", "-NOPERM sunsubscribe", "+PONG")
			p.replies("*2", "$4", "pong", "$0", "", "-NOPERM sunsubscribe")
			p.at("b:1").hears("SSUBSCRIBE k")
			continue
		}
		a.says("*2", "$4", "pong", "$0", "", moveK, "+PONG")
		b := p.at("b:1")
		b.hears("SUNSUBSCRIBE k")
		b.says(unsubscribedK...)
		p.replies("*2", "$4", "pong", "$0", "")
		p.replies(unsubscribedK...)
		p.send("GET k")
		b.hears("GET k")
	}
}
