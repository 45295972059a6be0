package cluster_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// keyAt returns a key that starts with prefix and is served by the i-th master.
func keyAt(t *testing.T, c *testredis.Cluster, i int, prefix string) string {
	t.Helper()
	for n := range 1000 {
		key := prefix + strings.Repeat("x", n%7) + string(rune('a'+n%26)) +
			strings.Repeat("y", n/26)
		if c.MasterOf(c.Slot(key)) == c.Nodes[i] {
			return key
		}
	}
	t.Fatal("no such key")
	return ""
}

func (c *client) replies(want ...string) {
	c.t.Helper()
	for i, w := range want {
		if got := c.reply(); got != w {
			c.t.Errorf("reply %d: %q, not %q", i, got, w)
		}
	}
}

const (
	crossSlot = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
	aborted   = "-EXECABORT Transaction discarded because of previous errors.\r\n"
	queued    = "+QUEUED\r\n"
	ok        = "+OK\r\n"
)

func TestTransactions(t *testing.T) {
	k := open(t, six(t))
	k.expect("FLUSHALL", ok)
	for _, tag := range []string{"{a}", "{b}", "{c}", "{d}"} { // whichever node is the default
		k.send("MULTI", "PING", "SET "+tag+"1 x", "GET "+tag+"1", "EXEC")
		k.replies(ok, queued, queued, queued, "*3\r\n+PONG\r\n+OK\r\n$1\r\nx\r\n")
		k.expect("MULTI", ok) // and the same one by one
		k.expect("PING", queued)
		k.expect("GET "+tag+"1", queued)
		k.expect("EXEC", "*2\r\n+PONG\r\n$1\r\nx\r\n")
	}
	k.send("MULTI", "SET {a}1 y", "SET {b}1 y", "EXEC", "GET {a}1")
	k.replies(ok, queued, crossSlot, aborted, "$1\r\nx\r\n")
	k.send("MULTI", "MGET a b c", "EXEC", "MULTI", "DISCARD", "PING")
	k.replies(ok, crossSlot, aborted, ok, ok, "+PONG\r\n")
	k.send("MULTI", "SET {a}1", "EXEC", "EXEC", "DISCARD")
	k.replies(ok, "-ERR wrong number of arguments for 'set' command\r\n", aborted,
		"-ERR EXEC without MULTI\r\n", "-ERR DISCARD without MULTI\r\n")
	nested := []string{"MULTI", "MULTI", "WATCH {b}1", "SET {b}1 z", "EXEC"}
	k.send(nested...)
	k.replies(directly(t, six(t).MasterOf(six(t).Slot("{b}1")), nested...)...)
	k.send("MULTI", "DBSIZE", "EXEC")
	k.replies(ok, "-ERR DBSIZE can't be part of a transaction on a cluster, which is run by one "+
		"node\r\n", aborted)
	k.send("MULTI", "EXEC", "PING")
	k.replies(ok, "*0\r\n", "+PONG\r\n")
}

// The lowest slot is one like the others: transactions and watches keep to it, or stay away.
func TestTheLowestSlot(t *testing.T) {
	const lowest, other = "{06S}1", "{b}1"
	c := six(t)
	if slot := c.Slot(lowest); slot != 0 {
		t.Fatalf("%s is in slot %d", lowest, slot)
	}
	k, by := open(t, c), open(t, c)
	for _, keys := range [][2]string{{lowest, other}, {other, lowest}} {
		k.send("MULTI", "SET "+keys[0]+" x", "SET "+keys[1]+" x", "EXEC")
		k.replies(ok, queued, crossSlot, aborted)
		k.expect("WATCH "+keys[0], ok)
		k.expect("WATCH "+keys[1], crossSlot)
		k.send("MULTI", "SET "+keys[1]+" x", "EXEC")
		k.replies(ok, crossSlot, aborted)
	}
	k.expect("WATCH "+lowest, ok)
	by.expect("SET "+lowest+" changed", ok)
	k.send("MULTI", "GET "+lowest, "EXEC")
	k.replies(ok, queued, "*-1\r\n")
	k.send("MULTI", "GET "+lowest, "EXEC")
	k.replies(ok, queued, "*1\r\n$7\r\nchanged\r\n")
}

// A command that the proxy doesn't know runs where its keys are, also within a transaction, which
// one of them can be the first to name.
func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0, "--rename-command", "APPEND", "module.append")
	k := open(t, c)
	for i := range c.Nodes { // whichever node is the default
		key := keyAt(t, c, i, "k")
		k.expect("MODULE.APPEND "+key+" a", ":1\r\n")
		k.send("MULTI", "MODULE.APPEND "+key+" b", "GET "+key, "EXEC")
		k.replies(ok, queued, queued, "*2\r\n:2\r\n$2\r\nab\r\n")
		k.send("MULTI", "MODULE.APPEND "+key+" c", "EXEC")
		k.replies(ok, queued, "*1\r\n:3\r\n")
		k.expect("MULTI", ok)
		k.expect("MODULE.APPEND "+key+" d", queued)
		k.expect("EXEC", "*1\r\n:4\r\n")
		k.expect("MULTI", ok)
		k.expect("MODULE.APPEND "+key+" e", queued)
		k.expect("GET "+key, queued)
		k.expect("EXEC", "*2\r\n:5\r\n$5\r\nabcde\r\n")
		k.expect("GET "+key, "$5\r\nabcde\r\n")
	}
}

func TestWatch(t *testing.T) {
	c := six(t)
	k, other := open(t, c), open(t, c)
	for _, tag := range []string{"{a}", "{b}", "{c}"} {
		k.expect("WATCH "+tag+"1 "+tag+"2", ok)
		k.send("MULTI", "SET "+tag+"3 1", "EXEC")
		k.replies(ok, queued, "*1\r\n+OK\r\n")
		k.expect("WATCH "+tag+"1", ok)
		other.expect("SET "+tag+"1 changed", ok)
		k.send("MULTI", "SET "+tag+"3 2", "EXEC")
		k.replies(ok, queued, "*-1\r\n")
		k.expect("WATCH "+tag+"1", ok)
		other.expect("SET "+tag+"1 changed", ok)
		k.send("MULTI", "PING", "EXEC") // no key, but the same watch
		k.replies(ok, queued, "*-1\r\n")
		k.expect("WATCH "+tag+"1", ok)
		other.expect("SET "+tag+"1 changed", ok)
		k.expect("UNWATCH", ok)
		k.send("MULTI", "SET "+tag+"3 2", "EXEC")
		k.replies(ok, queued, "*1\r\n+OK\r\n")
	}
	k.expect("WATCH a b", crossSlot)
	k.expect("WATCH a", ok)
	k.expect("WATCH b", crossSlot)
	k.send("MULTI", "SET b 1", "EXEC")
	k.replies(ok, crossSlot, aborted)
}

// A transaction whose slot moves before EXEC is run by the new node; one that is guarded by a WATCH
// is refused, as if a key had changed.
func TestTransactionsWhoseSlotMoves(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	k := open(t, c)
	slot := c.Slot("{m}")
	elsewhere := func() {
		to := c.Nodes[0]
		if c.MasterOf(slot) == to {
			to = c.Nodes[1]
		}
		c.Migrate(slot, to)
	}
	k.expect("SET {m}1 0", ok)
	k.expect("MULTI", ok)
	k.expect("INCR {m}1", queued)
	elsewhere()
	k.expect("INCR {m}1", queued)
	k.expect("EXEC", "*2\r\n:1\r\n:2\r\n")

	k.expect("MULTI", ok)
	k.expect("INCR {m}1", queued)
	elsewhere()
	k.expect("EXEC", "*1\r\n:3\r\n")

	k.expect("WATCH {m}1", ok)
	elsewhere()
	k.expect("MULTI", ok)
	k.expect("INCR {m}1", queued)
	k.expect("EXEC", "*-1\r\n")
	k.expect("GET {m}1", "$1\r\n3\r\n")

	elsewhere()
	k.send("WATCH {m}1", "GET {m}1")
	k.replies(ok, "$1\r\n3\r\n")
	k.send("MULTI", "INCR {m}1", "EXEC")
	k.replies(ok, queued, "*1\r\n:4\r\n")
}

func TestPubSub(t *testing.T) {
	c := six(t)
	for range 4 { // whichever nodes are the default
		k, other := open(t, c), open(t, c)
		k.send("GET nothing", "SUBSCRIBE x y", "PSUBSCRIBE z*")
		k.replies("$-1\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n",
			"*3\r\n$9\r\nsubscribe\r\n$1\r\ny\r\n:2\r\n",
			"*3\r\n$10\r\npsubscribe\r\n$2\r\nz*\r\n:3\r\n")
		other.send("PUBLISH x 1", "PUBLISH zz 2")
		other.reply()
		other.reply()
		k.replies("*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n1\r\n",
			"*4\r\n$8\r\npmessage\r\n$2\r\nz*\r\n$2\r\nzz\r\n$1\r\n2\r\n")
		other.expect("PUBSUB NUMSUB x y no",
			"*6\r\n$1\r\nx\r\n:1\r\n$1\r\ny\r\n:1\r\n$2\r\nno\r\n:0\r\n")
		k.send("PING", "UNSUBSCRIBE")
		k.replies("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		first, second := k.reply(), k.reply()
		if !strings.HasSuffix(first, ":2\r\n") || !strings.HasSuffix(second, ":1\r\n") {
			t.Errorf("UNSUBSCRIBE: %q, %q", first, second)
		}
		k.expect("PUNSUBSCRIBE z*", "*3\r\n$12\r\npunsubscribe\r\n$2\r\nz*\r\n:0\r\n")
		k.expect("GET nothing", "$-1\r\n")
	}
}

func TestShardedPubSub(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	k, other := open(t, c), open(t, c)
	one, two := keyAt(t, c, 0, "p"), keyAt(t, c, 1, "p")
	text := func(kind, channel string, n string) string {
		return "*3\r\n$" + length(kind) + "\r\n" + kind + "\r\n$" + length(channel) + "\r\n" +
			channel + "\r\n:" + n + "\r\n"
	}
	message := func(channel, text string) string {
		return "*3\r\n$8\r\nsmessage\r\n$" + length(channel) + "\r\n" + channel + "\r\n$" +
			length(text) + "\r\n" + text + "\r\n"
	}
	k.expect("SSUBSCRIBE "+one, text("ssubscribe", one, "1"))
	k.expect("SSUBSCRIBE "+two, text("ssubscribe", two, "2"))
	k.expect("SSUBSCRIBE "+one+" "+two, crossSlot)
	other.expect("SPUBLISH "+one+" a", ":1\r\n")
	other.expect("SPUBLISH "+two+" b", ":1\r\n")
	got := map[string]bool{k.reply(): true, k.reply(): true}
	if !got[message(one, "a")] || !got[message(two, "b")] {
		t.Errorf("messages: %v", got)
	}
	c.Migrate(c.Slot(one), c.Nodes[1])
	testwait.Until(t, "the subscription moves with its slot",
		func() bool { return other.ask("SPUBLISH "+one+" c") == ":1\r\n" })
	k.replies(message(one, "c"))
	k.expect("SUNSUBSCRIBE "+one, text("sunsubscribe", one, "1"))
	k.expect("SUNSUBSCRIBE", text("sunsubscribe", two, "0"))
	k.expect("GET "+one, "$-1\r\n")
}

func length(s string) string {
	n := len(s)
	if n < 10 {
		return string(rune('0' + n))
	}
	return string(rune('0'+n/10)) + string(rune('0'+n%10))
}

func TestResp3AndTracking(t *testing.T) {
	c := six(t)
	k, other := open(t, c), open(t, c)
	k.send("HELLO 3")
	if got := k.reply(); !strings.HasPrefix(got, "%7\r\n") {
		t.Fatalf("HELLO 3: %q", got)
	}
	k.expect("CLIENT TRACKING ON", ok)
	for i := range 3 { // nodes that the Conn has not seen yet among them
		key := keyAt(t, c, i, "t")
		k.expect("GET "+key, "_\r\n")
		other.expect("SET "+key+" 1", ok)
		k.replies(">2\r\n$10\r\ninvalidate\r\n*1\r\n$" + length(key) + "\r\n" + key + "\r\n")
	}
	k.expect("CLIENT TRACKING OFF", ok)
	k.expect("SUBSCRIBE a", ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	other.send("PUBLISH a hello")
	other.reply()
	k.replies(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n")
	k.expect("GET nothing", "_\r\n")
	k.expect("RESET", "+RESET\r\n")
	k.expect("GET nothing", "$-1\r\n")
}

func TestBlocking(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	k, other := open(t, c), open(t, c)
	k.expect("BLPOP a b 1", crossSlot)
	k.send("BLPOP {q}1 {q}2 0", "GET nothing")
	slot := c.Slot("{q}")
	testwait.Until(t, "BLPOP waits", func() bool {
		return strings.Contains(c.MasterOf(slot).Ask("CLIENT", "LIST"), " cmd=blpop ")
	})
	to := c.Nodes[0]
	if c.MasterOf(slot) == to {
		to = c.Nodes[1]
	}
	c.Migrate(slot, to)
	other.expect("RPUSH {q}2 v", ":1\r\n")
	k.replies("*2\r\n$4\r\n{q}2\r\n$1\r\nv\r\n", "$-1\r\n")
}

func TestScanVisitsAllMasters(t *testing.T) {
	c := six(t)
	k := open(t, c)
	k.expect("FLUSHALL", ok)
	want := 300
	for i := range want {
		k.expect("SET scan:"+strings.Repeat("k", i+1)+" 1", ok)
	}
	seen := map[string]bool{}
	cursor := "0"
	for range 1000 {
		got := k.ask("SCAN " + cursor + " MATCH scan:* COUNT 7")
		lines := strings.Split(got, "\r\n")
		cursor = lines[2]
		for _, line := range lines[4:] {
			if strings.HasPrefix(line, "scan:") {
				seen[line] = true
			}
		}
		if cursor == "0" {
			break
		}
	}
	if len(seen) != want || cursor != "0" {
		t.Errorf("%d keys of %d, cursor %s", len(seen), want, cursor)
	}
	k.expect("SCAN x", "-ERR invalid cursor\r\n")
	if got := k.ask("KEYS scan:kk"); got != "*1\r\n$7\r\nscan:kk\r\n" {
		t.Errorf("KEYS: %q", got)
	}
	if got := k.ask("RANDOMKEY"); !strings.Contains(got, "scan:") {
		t.Errorf("RANDOMKEY: %q", got)
	}
}

// What comes behind a MULTI with arguments, which is refused, is no part of a transaction.
func TestRefusedMulti(t *testing.T) {
	t.Parallel()
	c := six(t)
	for i := range 3 {
		k, key := open(t, c), keyAt(t, c, i, "refused")
		k.send("MULTI x", "SET "+key+" 1", "GET "+key)
		k.replies("-ERR wrong number of arguments for 'multi' command\r\n", ok, "$1\r\n1\r\n")
	}
}
