package cluster_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"lockproxy/internal/cluster"
	"lockproxy/internal/test/testwait"
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

// CLIENT LIST shows a client once, though it has a connection to each master, by the number that it
// is itself told, and by its latest command. By that number others end it as a whole, and its waits.
func TestClientListShowsEachOnce(t *testing.T) {
	t.Parallel()
	nodes := six(t)
	cl := cluster.New(nodes.Addrs())
	admin, k, victim := openAt(t, cl), openAt(t, cl), openAt(t, cl)
	for i, c := range []*client{k, victim} {
		c.expect(fmt.Sprint("CLIENT SETNAME once", i), ok)
		for node := range 3 {
			c.ask("GET " + keyAt(t, nodes, node, "once"))
		}
	}
	line := func(name string) (id string) {
		t.Helper()
		lines := regexp.MustCompile(`(?m)^id=(\d+) .* name=`+name+` .*$`).FindAllStringSubmatch(
			admin.ask("CLIENT LIST"), -1)
		if len(lines) != 1 {
			t.Fatalf("%s has %d lines: %q", name, len(lines), lines)
		}
		return lines[0][1]
	}
	id := line("once0")
	if own := k.id(); own != id || line("once0") != id {
		t.Errorf("CLIENT LIST says %s, then %s, CLIENT ID %s", id, line("once0"), own)
	}
	id = line("once1")
	for node := range 3 {
		victim.send("BLPOP " + keyAt(t, nodes, node, "unblock-once") + " 0")
		testwait.Until(t, "it is unblocked", func() bool {
			return admin.ask("CLIENT UNBLOCK "+id) == ":1\r\n"
		})
		victim.replies("*-1\r\n")
	}
	victim.expect("WATCH k", ok)
	admin.expect("CLIENT KILL ID "+id, ":1\r\n")
	if got, err := victim.tryReply(); err == nil {
		t.Errorf("it goes on: %q", got)
	}
	if got := k.id(); got != line("once0") {
		t.Errorf("another client is %s now", got)
	}
}
