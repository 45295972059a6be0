package cluster_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"lockproxy/internal/cluster"
	"lockproxy/internal/testwait"
)

var (
	idOfLine  = regexp.MustCompile(`(?m)^(?:txt:)?id=(\d+) `)
	idOfHello = regexp.MustCompile(`\$2\r\nid\r\n:(\d+)\r\n`)
)

func (c *client) id() string {
	c.t.Helper()
	got := c.ask("CLIENT ID")
	if got[0] != ':' {
		c.t.Fatalf("CLIENT ID: %q", got)
	}
	return strings.Trim(got, ":\r\n")
}

// All commands show the same number for a client, and no two connections have the same.
func TestClientIDs(t *testing.T) {
	t.Parallel()
	nodes := six(t)
	for _, proto := range []string{"2", "3"} {
		k := open(t, nodes)
		hello := idOfHello.FindStringSubmatch(k.ask("HELLO " + proto))
		id := k.id()
		if hello == nil || hello[1] != id {
			t.Errorf("HELLO says %q, CLIENT ID says %s", hello, id)
		}
		for _, by := range []string{"CLIENT INFO", "CLIENT LIST ID " + id} {
			got := idOfLine.FindAllStringSubmatch(k.ask(by), -1)
			if len(got) != 1 || got[0][1] != id {
				t.Errorf("%s: %q, CLIENT ID says %s", by, got, id)
			}
		}
		list := k.ask("CLIENT LIST")
		seen, lines := map[string]bool{}, idOfLine.FindAllStringSubmatch(list, -1)
		for _, line := range lines {
			if seen[line[1]] {
				t.Errorf("%s is there twice", line[1])
			}
			seen[line[1]] = true
		}
		text := list[strings.IndexByte(list, '\n')+1:]
		if !seen[id] || len(lines) != strings.Count(text, "\n")-1 ||
			strings.Count(list, "txt:") > 1 {
			t.Errorf("own number %s, %d with numbers of %q", id, len(lines), list)
		}
	}
}

// A number without a client, or an invalid one, ends and wakes nobody.
func TestClientIDsOfNobody(t *testing.T) {
	t.Parallel()
	k := open(t, six(t))
	for _, id := range []string{"1", "7", "1048576", "9223372036854775807"} {
		k.expect("CLIENT KILL ID "+id, ":0\r\n")
		k.expect("CLIENT UNBLOCK "+id, ":0\r\n")
		if got := k.ask("CLIENT LIST ID " + id); got != "$0\r\n\r\n" {
			t.Errorf("CLIENT LIST ID %s: %q", id, got)
		}
	}
	for _, wrong := range []string{"KILL ID 0", "KILL ID x", "KILL ID 5 more", "UNBLOCK x",
		"LIST ID x", "UNBLOCK 5 MORE", "UNBLOCK", "KILL"} {
		if got := k.ask("CLIENT " + wrong); got[0] != '-' {
			t.Errorf("CLIENT %s: %q", wrong, got)
		}
	}
}

// CLIENT UNBLOCK wakes the client with that number, whichever master it blocks at, and nobody with
// the same number at another node.
func TestClientUnblock(t *testing.T) {
	t.Parallel()
	nodes := six(t)
	cl := cluster.New(nodes.Addrs())
	admin := openAt(t, cl)
	var blocked []*client
	var ids []string
	for i := range 6 {
		k := openAt(t, cl)
		ids = append(ids, k.id())
		k.send("BLPOP " + keyAt(t, nodes, i%3, fmt.Sprint("unblock", i)) + " 0")
		blocked = append(blocked, k)
	}
	for i, k := range blocked {
		testwait.Until(t, fmt.Sprintf("client %d is unblocked", i),
			func() bool { return admin.ask("CLIENT UNBLOCK "+ids[i]) == ":1\r\n" })
		if got := k.reply(); got != "*-1\r\n" {
			t.Errorf("client %d: %q", i, got)
		}
		// one that had been woken instead could not be woken when its turn comes
	}
}

// CLIENT KILL ID ends the client with that number, and nobody else.
func TestClientKillID(t *testing.T) {
	t.Parallel()
	cl := cluster.New(six(t).Addrs())
	var clients []*client
	var ids []string
	for range 5 {
		k := openAt(t, cl)
		clients, ids = append(clients, k), append(ids, k.id())
		k.expect("WATCH k", ok) // a connection that is lost without it is replaced silently
	}
	clients[0].expect("CLIENT KILL ID "+ids[2], ":1\r\n")
	if _, err := clients[2].tryReply(); err == nil {
		t.Error("the client goes on")
	}
	clients[0].expect("CLIENT KILL ID "+ids[2], ":0\r\n")
	for _, i := range []int{0, 1, 3, 4} {
		if got := clients[i].id(); got != ids[i] {
			t.Errorf("client %d was %s and is %s", i, ids[i], got)
		}
	}
	clients[1].expect("CLIENT KILL ID "+ids[1], ":0\r\n")
	clients[1].expect("CLIENT KILL SKIPME no ID "+ids[1], ":1\r\n")
	if got, err := clients[1].tryReply(); err == nil {
		t.Errorf("it goes on: %q", got)
	}
}
