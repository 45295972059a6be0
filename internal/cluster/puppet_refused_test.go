package cluster

import (
	"strconv"
	"strings"
	"testing"
)

var slotOther = strconv.Itoa(Slot([]byte("other")))

// What concerns all nodes goes to all, what concerns one slot to its node, and what is about one
// node is refused.
func TestCommandsOfOneOrAllNodes(t *testing.T) {
	p := twoNodes(t)
	for _, request := range []string{"CLUSTER MIGRATESLOTS SLOTSRANGE 0 1 NODE x",
		"CLUSTER CANCELSLOTMIGRATIONS", "CLUSTER MIGRATION IMPORT 0 1",
		"CLUSTER SLOT-STATS ORDERBY KEY-COUNT"} {
		p.send(request)
		got, err := p.in.ReadString('\n')
		if !strings.Contains(got, "can't be sent to a cluster as a whole") {
			t.Errorf("%s: %q, %v", request, got, err)
		}
	}
	p.send("CLUSTER FLUSHSLOT "+slotK, "CLUSTER FLUSHSLOT "+slotOther)
	a, b := p.at("a:1"), p.at("b:1")
	a.hears("CLUSTER FLUSHSLOT " + slotK)
	b.hears("CLUSTER FLUSHSLOT " + slotOther)
	a.says("+OK")
	b.says("+OK")
	p.replies("+OK", "+OK")
	for _, request := range []string{"MODULE LOAD x", "MODULE UNLOAD x"} {
		p.send(request)
		a.hears(request)
		b.hears(request)
		a.says("+OK")
		b.says("-ERR b has not")
		p.replies("-ERR b has not")
	}
	p.send("ACL LOG", "COMMANDLOG LEN slow", "LMPOP 99 k other LEFT")
	a.hears("ACL LOG", "COMMANDLOG LEN slow", "LMPOP 99 k other LEFT")
	b.hears("ACL LOG", "COMMANDLOG LEN slow")
	a.says("*1", ":1", ":1", "-ERR syntax error")
	b.says("*1", ":2", ":2")
	p.replies("*2", ":1", ":2", ":3", "-ERR syntax error")
}

// WATCH within MULTI is refused by a node, which decides whether EXEC fails, also if the transaction
// goes on at another.
func TestWatchWithinMulti(t *testing.T) {
	p := twoNodes(t)
	a := p.opens("a:1")
	p.send("MULTI", "SET k 1", "WATCH other", "EXEC")
	a.hears("MULTI", "SET k 1", "WATCH k", "EXEC")
	a.says("+OK", "+QUEUED", "-ERR WATCH inside MULTI", "-EXECABORT")
	p.replies("+OK", "+QUEUED", "-ERR WATCH inside MULTI", "-EXECABORT")

	p.send("MULTI", "WATCH other", "SET k 1", "EXEC")
	a.hears("MULTI", "GET", "EXEC")
	b := p.at("b:1")
	b.hears("MULTI", "WATCH other", "GET", "EXEC")
	b.says("+OK", "-ERR WATCH inside MULTI", "-ERR wrong number", "-EXECABORT")
	a.says("+OK", "-ERR wrong number", "-EXECABORT")
	a.hears("MULTI", "WATCH k", "SET k 1", "EXEC")
	a.says("+OK", "-ERR WATCH inside MULTI", "+QUEUED", "*1", "+OK")
	p.replies("+OK", "-ERR WATCH inside MULTI", "+QUEUED", "*1", "+OK")
}

// Whichever node a transaction has begun at, its first key must not come behind more than is
// recorded.
func TestLateKeyOfATransaction(t *testing.T) {
	for _, key := range []string{"k", "other"} {
		p := twoNodes(t)
		a := p.opens("a:1")
		large := strings.Repeat("v", 2<<20)
		p.send("MULTI", "ECHO "+large, "SET "+key+" 1", "EXEC")
		a.hears("MULTI", "ECHO "+large, "GET", "EXEC")
		a.says("+OK", "+QUEUED", "-ERR wrong number", "-EXECABORT")
		p.replies("+OK", "+QUEUED")
		if got, err := p.in.ReadString('\n'); got != string(lateKey) {
			t.Errorf("SET %s: %q, %v", key, got, err)
		}
		p.replies("-EXECABORT")
	}
}
