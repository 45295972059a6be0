package cluster

import (
	"strconv"
	"strings"
	"testing"
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

// A script follows a node's MOVED to a node that was a replica, with the requests behind it: the node
// that says so has run none of them.
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

// A node that has named an unknown one does not say whom it knows, and another names the same.
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

func nodesReply(text string) []string { return []string{"$" + strconv.Itoa(len(text)), text} }
