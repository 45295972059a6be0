package cluster_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
)

const (
	wrongArgs = "-ERR wrong number of arguments for '%' command\r\n"
	notRun    = "*-1\r\n"
)

// A RESET that is refused within a transaction, by servers that do not have it, makes EXEC fail,
// whichever node runs it.
func TestRefusedResetWithinMulti(t *testing.T) {
	c := testredis.StartCluster(t, 2, 0, "--rename-command", "RESET", "")
	k := open(t, c)
	for i := range c.Nodes { // whichever node is the default
		key := keyAt(t, c, i, "k")
		k.send("MULTI", "RESET", "SET "+key+" x", "EXEC", "GET "+key)
		k.replies(ok, directly(t, c.Nodes[i], "RESET")[0], queued, aborted, "$-1\r\n")
	}
}

// A refused UNWATCH, DISCARD or RESET changes nothing at the node that has the watch or the
// transaction.
func TestRefusedEnds(t *testing.T) {
	c := testredis.StartCluster(t, 2, 0)
	for _, node := range c.Nodes {
		got := node.Ask("ACL", "SETUSER", "poor", "on", ">p", "~*", "&*", "+@all",
			"-discard", "-unwatch")
		if got != "+OK" {
			t.Fatal(got)
		}
	}
	other := open(t, c)
	for i := range c.Nodes { // whichever node is the default
		key := keyAt(t, c, i, "k")
		for _, user := range []string{"", "poor"} {
			k := open(t, c)
			if user != "" {
				k.expect("AUTH poor p", ok)
			}
			watched := func() {
				t.Helper()
				other.expect("SET "+key+" other", ok)
				k.send("MULTI", "SET "+key+" mine", "EXEC", "GET "+key)
				k.replies(ok, queued, notRun, "$5\r\nother\r\n")
				k.send("MULTI", "PING", "EXEC")
				k.replies(ok, queued, "*1\r\n+PONG\r\n")
			}
			for _, refused := range []string{"unwatch", "reset", "discard", "exec"} {
				k.expect("WATCH "+key, ok)
				switch {
				case refused == "discard" && user != "":
					k.mayNot(refused)
				case refused == "discard" || refused == "exec":
					k.expect(refused, "-ERR "+strings.ToUpper(refused)+" without MULTI\r\n")
				default:
					k.expect(refused+" x", strings.Replace(wrongArgs, "%", refused, 1))
				}
				watched()
			}
			if user != "" {
				k.expect("WATCH "+key, ok)
				k.mayNot("UNWATCH")
				watched()
			}
			for _, refused := range []string{"discard", "reset"} {
				k.expect("MULTI", ok)
				k.expect("SET "+key+" mine", queued)
				k.expect(refused+" x", strings.Replace(wrongArgs, "%", refused, 1))
				k.expect("PING", queued)
				k.expect("EXEC", aborted)
				k.send("SET "+key+" x", "GET "+key)
				k.replies(ok, "$1\r\nx\r\n")
			}
			if user != "" {
				k.expect("MULTI", ok)
				k.expect("SET "+key+" mine", queued)
				k.mayNot("DISCARD")
				k.send("GET "+key, "MULTI", "GET "+key, "EXEC")
				k.replies("$1\r\nx\r\n", ok, queued, "*1\r\n$1\r\nx\r\n")
				k.expect("RESET x", strings.Replace(wrongArgs, "%", "reset", 1))
				for j := range c.Nodes { // also where nothing has been asked yet
					k.expect("MULTI", ok)
					k.expect("GET "+keyAt(t, c, j, "elsewhere"), queued)
					k.expect("ACL WHOAMI", queued)
					if got := k.ask("EXEC"); !strings.Contains(got, "$4\r\npoor\r\n") {
						t.Errorf("node %d serves %q", j, got)
					}
				}
			}
		}
	}
}
