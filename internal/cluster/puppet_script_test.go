package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The key 06S of these tests is in slot 0, next to having no slot.

// A script that answers with a redirection leads nobody to a place where no node is.
func TestRedirectionByAScript(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1", "evil:1")
	reply := "MOVED 0 evil:1"
	p.send("EVAL script 1 06S")
	a := p.at("a:1")
	a.hears("EVAL script 1 06S")
	a.says("-" + reply)
	a.hears("CLUSTER NODES")
	a.says(nodesReply("id b:1@2 master")...)
	a.hears("EVAL script 1 06S")
	a.says("-" + reply)
	p.replies("-" + reply)
	p.send("EVAL script 0", "GET 06S")
	a.hears("EVAL script 0", "GET 06S")
	a.says("-"+reply, "$-1")
	p.replies("-"+reply, "$-1")
	p.send("DEBUG ERROR", "GET 06S")
	a.hears("DEBUG ERROR", "GET 06S")
	a.says("-"+reply, "$-1")
	p.replies("-"+reply, "$-1")
	if len(p.calls["evil:1"]) > 0 {
		t.Error("the proxy asks where the script has led it")
	}
}

// A script that answers what only resembles a node's error is not run again.
func TestScriptThatSaysTryAgain(t *testing.T) {
	p := newPuppets(t, "a:1")
	p.send("EVAL script 1 06S")
	a := p.at("a:1")
	for _, text := range []string{"-TRYAGAIN later", "-CLUSTERDOWN for today", "-READONLY mode",
		"-UNBLOCKED the instance state changed"} {
		a.hears("EVAL script 1 06S")
		a.says(text)
		p.replies(text)
		p.send("EVAL script 1 06S")
	}
	for _, text := range []string{strings.TrimSpace(string(tryAgainReply)),
		"-TRYAGAIN Slot is being trimmed"} { // as of Redis 8.4
		a.hears("EVAL script 1 06S")
		a.says(text)
	}
	a.hears("EVAL script 1 06S")
	a.says("+1")
	p.replies("+1")
}

// A script follows a node's ASK to a node that serves no slot yet.
func TestScriptAtANewNode(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("EVAL script 1 06S")
	a := p.at("a:1")
	a.hears("EVAL script 1 06S")
	a.says("-ASK 0 b:1")
	a.hears("CLUSTER NODES")
	a.says(nodesReply("id 127.0.0.1:1@2,b master - 0 0 0 connected")...)
	a.hears("EVAL script 1 06S")
	a.says("-ASK 0 b:1")
	b := p.at("b:1")
	b.hears("ASKING", "EVAL script 1 06S")
	b.says("+OK", "+1")
	p.replies("+1")
}

// A script follows a node's MOVED to a node that was a replica, with the requests behind it: the
// node that says so has run none of them.
func TestScriptsAtANewMaster(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("EVAL script 1 06S", "GET 06S")
	a := p.at("a:1")
	a.hears("EVAL script 1 06S", "GET 06S")
	a.says("-MOVED 0 b:1")
	a.hears("CLUSTER NODES")
	a.says("-MOVED 0 b:1")
	a.says(nodesReply("id b:1@2 master")...)
	b := p.at("b:1")
	b.hears("EVAL script 1 06S")
	b.says("+1")
	b.hears("GET 06S")
	b.says("+2")
	p.replies("+1", "+2")
}

// A node names an unknown node, and does not answer CLUSTER NODES. Another node names the same one.
func TestScriptWhoseNodeDoesNotSayWhomItKnows(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1", "c:1")
	p.send("EVAL script 1 06S")
	a := p.at("a:1")
	a.hears("EVAL script 1 06S")
	p.refreshed("c:1", false)
	a.hears("PING")
	a.says("-MOVED 0 b:1")
	a.hears("CLUSTER NODES")
	c := p.at("c:1")
	c.hears("EVAL script 1 06S")
	c.says("-MOVED 0 b:1")
	c.hears("CLUSTER NODES")
	c.says(nodesReply("id b:1@2 master")...)
	c.hears("EVAL script 1 06S")
	c.says("-MOVED 0 b:1")
	b := p.at("b:1")
	b.hears("EVAL script 1 06S")
	b.says("+1")
	p.replies("+1")
}

// replicaAt adds a replica to the map, and returns the masters that OnReplaced is told.
func (p *puppets) replicaAt(addr string) (promoted chan string) {
	m := *p.cl.slots.Load()
	m.ids, m.replicas = []string{"id"}, []string{addr}
	p.cl.update(&m, 1, time.Now())
	promoted = make(chan string, 10)
	p.cl.OnReplaced(func(master string) { promoted <- master })
	return promoted
}

// A script's MOVED to a replica changes nobody's map, and its client is given it. The node's answer
// about an earlier script does not count.
func TestScriptThatNamesAReplica(t *testing.T) {
	p := newPuppets(t, "a:1", "r:1")
	promoted := p.replicaAt("r:1")
	before := p.cl.slots.Load()
	a := p.opens("a:1")
	p.conn.mu.Lock()
	p.conn.nodes.others["a:1"] = map[string]bool{"r:1": true}
	p.conn.mu.Unlock()
	p.send("EVAL script 1 06S")
	a.hears("EVAL script 1 06S")
	a.says("-MOVED 0 r:1")
	a.hears("CLUSTER NODES")
	a.says(nodesReply("id a:1@2 myself,master - 0 0 1\nid r:1@2 slave id 0 0 1")...)
	a.hears("EVAL script 1 06S")
	a.says("-MOVED 0 r:1")
	p.replies("-MOVED 0 r:1")
	if len(promoted) > 0 || p.cl.slots.Load() != before || len(p.calls["r:1"]) > 0 {
		t.Error("a script has had a replica taken for a master")
	}
}

// Before a script is sent to a replica that has become a master, OnReplaced is told of that.
func TestScriptAtAPromotedReplica(t *testing.T) {
	p := newPuppets(t, "a:1", "r:1")
	promoted := p.replicaAt("r:1")
	p.send("EVAL script 1 06S")
	a := p.at("a:1")
	a.hears("EVAL script 1 06S")
	a.says("-MOVED 0 r:1")
	a.hears("CLUSTER NODES")
	a.says(nodesReply("id a:1@2 myself,slave id 0 0 2\nid r:1@2 master - 0 0 2")...)
	a.hears("EVAL script 1 06S")
	a.says("-MOVED 0 r:1")
	r := p.at("r:1")
	if len(promoted) != 1 {
		t.Errorf("OnReplaced was told %d times before the replica was asked", len(promoted))
	}
	r.hears("EVAL script 1 06S")
	r.says("+1")
	p.replies("+1")
}

// A client without the right to CLUSTER NODES gets no redirection. The redirection is followed once
// the map has the master.
func TestScriptOfAUserWithFewRights(t *testing.T) {
	for reply, asked := range map[string][]string{
		"-ASK 0 b:1":   {"ASKING", "EVAL script 1 06S"},
		"-MOVED 0 b:1": {"EVAL script 1 06S"},
	} {
		p := newPuppets(t, "a:1", "b:1")
		p.send("EVAL script 1 06S")
		a := p.at("a:1")
		refuses := func() {
			a.hears("EVAL script 1 06S")
			a.says(reply)
			a.hears("CLUSTER NODES")
			a.says("-NOPERM this user has no permissions to run 'cluster|nodes'")
		}
		for range maxTries + 1 {
			refuses()
		}
		got, err := p.in.ReadString('\n')
		if !strings.HasPrefix(got, "-TRYAGAIN ") {
			t.Errorf("%q, %v", got, err)
		}
		p.send("EVAL script 1 06S")
		refuses()
		a.hears("EVAL script 1 06S")
		p.cl.slots.Store(allAt("a:1").with(1, "b:1"))
		a.says(reply)
		p.at("b:1").hears(asked...)
	}
}

// Only lines that name a master count, and no guess at an address is one where a replica is.
func TestMastersInClusterNodes(t *testing.T) {
	got := slices.Sorted(maps.Keys(parseNodes("id 10.0.0.1:1@2,a myself,master - 0 0 1\n"+
		"id 10.0.0.2:2@3 master - 0 0 1\nid :3@4 master,fail - 0 0 1\n"+
		"id 10.0.0.1:4@5 slave id 0 0 1\nid 10.0.0.2:4@5 master - 0 0 1\n"+
		"id 10.0.0.2:5@6,r slave,fail id 0 0 1\nid 10.0.0.2:6@7 handshake", "10.0.0.1:1")))
	want := []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:2", "10.0.0.2:4", "a:1"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func nodesReply(text string) []string { return []string{"$" + strconv.Itoa(len(text)), text} }
