package cluster_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// A request does not overtake an earlier one for the same slot that no node can run yet.
func TestOrderBehindTryAgain(t *testing.T) {
	c := six(t)
	const tag = "{order}"
	slot := c.Slot(tag)
	from := c.MasterOf(slot)
	to := c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}
	conn := open(t, c)
	conn.expect("MSET "+tag+"1 before "+tag+"2 before", "+OK\r\n")
	m := c.BeginMigration(from, to, slot)
	m.MoveKey(tag + "1")
	tried := regexp.MustCompile(`errorstat_TRYAGAIN:count=(\d+)`)
	refused := func() (times int) { // by both nodes
		for _, node := range []*testredis.Server{from, to} {
			if found := tried.FindStringSubmatch(node.Ask("INFO", "errorstats")); found != nil {
				n, _ := strconv.Atoi(found[1])
				times += n
			}
		}
		return times
	}
	before := refused()
	conn.send("MSET " + tag + "1 first " + tag + "2 first") // its keys are at two nodes
	// It has been sent again, so the Conn knows of the first time. What it is sent before that goes
	// to a node right behind the MSET.
	testwait.Until(t, "a node has refused it twice", func() bool { return refused() > before+1 })
	conn.send("SET "+tag+"2 second", "GET "+tag+"2")
	m.MoveKeys()
	m.Finish()
	for i, want := range []string{"+OK\r\n", "+OK\r\n", "$6\r\nsecond\r\n"} {
		if got := conn.reply(); got != want {
			t.Errorf("reply %d: %q, not %q", i, got, want)
		}
	}
	conn.expect("GET "+tag+"2", "$6\r\nsecond\r\n")
	c.MigrateSlots(to, from, slot)
}

// LOCKPROXY.WAIT asks the node that has answered last for the key, on the same connection, and
// fails if that is impossible.
func TestWaitAt(t *testing.T) {
	c := six(t)
	conn := open(t, c)
	for i := range 6 {
		key := "wait" + strconv.Itoa(i)
		got := conn.ask("LOCKPROXY.WAIT " + key + " 1 100")
		if !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("a WAIT for what was not written: %q", got)
		}
		conn.expect("SET "+key+" x", "+OK\r\n")
		conn.expect("LOCKPROXY.WAIT "+key+" 1 60000", ":1\r\n")
		conn.expect("LOCKPROXY.WAIT "+key+" 2 50", ":1\r\n")
		// WAITAOF is an error without an append-only file, and before 7.2.
		if got := conn.ask("LOCKPROXY.WAIT " + key + " 1 0 50"); !strings.HasPrefix(got, "-ERR ") ||
			!strings.Contains(got, "WAITAOF") {
			t.Errorf("a WAITAOF: %q", got)
		}
	}
	conn.expect("LOCKPROXY.WAIT wait5 1",
		"-ERR wrong number of arguments for 'lockproxy.wait' command\r\n")
	// the node of SET is not known yet
	conn.send("SET wait5 y", "LOCKPROXY.WAIT wait5 1 100")
	conn.reply()
	if got := conn.reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
		t.Errorf("a WAIT right behind a write: %q", got)
	}

	// What came before it, at another node, is answered later.
	other := "other"
	for i := 0; c.MasterOf(c.Slot(other)) == c.MasterOf(c.Slot("wait0")); i++ {
		other = "other" + strconv.Itoa(i)
	}
	conn.send("BLPOP "+other+" 0.2", "SET wait0 y")
	conn.reply()
	conn.reply()
	conn.expect("LOCKPROXY.WAIT wait0 1 60000", ":1\r\n")

	// A replica that is held back isn't counted by the replicas of others.
	master := c.MasterOf(c.Slot("wait0"))
	replica := c.ReplicaOf(master)
	replica.Pause()
	conn.expect("SET wait0 z", "+OK\r\n")
	conn.expect("LOCKPROXY.WAIT wait0 1 100", ":0\r\n")
	replica.Resume()
	conn.expect("LOCKPROXY.WAIT wait0 1 60000", ":1\r\n")
}
