//go:build !race

package relay_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// diffOnClusters are the tables whose conversations are also held with a cluster.
var diffOnClusters = []string{"strings", "hashes", "lists", "sets", "zsets", "streams", "geo",
	"keys", "scripting", "transactions", "pubsub", "blocking", "connection", "protocol"}

// diffClusterExceptions lists what a cluster behind the proxy answers differently from one Redis,
// although all keys are in one slot. calls are the first words of a call, separated by commas.
var diffClusterExceptions = []struct{ calls, reason string }{
	{"select,swapdb,move,copy", "a cluster has one database"},
	{"script debug", "it is about one node"},
	{"scan", "a page ends with the keys of one master; as with one Redis, it can be empty"},
	{"sort", "Redis refuses BY and GET with patterns in a cluster, whose keys could be anywhere"},
	{"migrate 127.0.0.1", "a node that speaks TLS to others notices sooner that nobody is there"},
	{"wait,waitaof", "these nodes have a replica and an append-only file"},
}

// diffNotOnClusters are conversations that are impossible with a cluster, by name.
var diffNotOnClusters = map[string]string{
	"SELECT":                  "a cluster has one database",
	"moving":                  "likewise",
	"QUIT while MONITOR runs": "MONITOR shows the proxy's own requests to the nodes",
	"RESET from every state":  "likewise",
	"SELECT, AUTH and others in a transaction":  "a cluster has one database",
	"HELLO in a transaction":                    "HELLO concerns all nodes, the transaction one",
	"what may not be queued":                    "MONITOR is of all nodes, the transaction of one",
	"SUBSCRIBE in a transaction":                "subscriptions and transaction are at two nodes",
	"SUBSCRIBE of one channel in a transaction": "likewise",
	"what a subscriber may do":                  "likewise",
	"a transaction that sends to itself":        "the message comes within EXEC's reply",
	"a transaction and SCRIPT":                  "SCRIPT is of all nodes, the transaction of one",
	"keyspace notifications":                    "each node reports its own keys",
}

// TestDifferentialCluster holds the conversations about data with a redis-server and, through the
// proxy, with a cluster, and compares the replies byte for byte. On both sides all keys of a
// conversation are in one slot, so that no command fails because of several slots. The race detector
// watches the same paths in test/cluster.
func TestDifferentialCluster(t *testing.T) {
	t.Parallel()
	nodes := proxytest.SixNodes(t)
	url := nodes.URL()
	for _, name := range diffOnClusters {
		file := filepath.Join("testdata/differential", name+".txt")
		script, err := diffParse(file)
		if err != nil {
			t.Fatal(err)
		}
		if script.server != nil {
			continue
		}
		for _, proto := range []string{"2", "3"} {
			t.Run(name+"/RESP"+proto, func(t *testing.T) {
				direct, proxied := diffClusterPair(t, url)
				for _, c := range script.conversations {
					if c.proto != "" && c.proto != proto || !c.clusterable() ||
						c.limit == "dedicated" || c.leftOut() || diffNotOnClusters[c.name] != "" {
						continue
					}
					t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
						diffClusterHold(t, c.inOneSlot(), direct, proxied, proto)
					})
				}
			})
		}
	}
}

// clusterable reports whether a conversation is possible with
// a cluster: it asks nothing about the server itself.
func (c *diffConversation) clusterable() bool {
	return !slices.ContainsFunc(c.steps, func(s diffStep) bool {
		return s.directive == "blocked" || s.directive == "until" || s.directive == "busy" ||
			s.directive == "locked" ||
			s.directive == "send"
	})
}

// inOneSlot is the conversation with a hash tag before each key.
func (c *diffConversation) inOneSlot() *diffConversation {
	tagged := *c
	tagged.steps = slices.Clone(c.steps)
	for i := range tagged.steps {
		step := &tagged.steps[i]
		if step.directive != "" || len(step.args) == 0 {
			continue
		}
		step.args = slices.Clone(step.args)
		var args [][]byte
		for _, arg := range step.args {
			args = append(args, []byte(arg))
		}
		for _, at := range commands.Find(args[0]).For(args).Keys.Positions(args, nil) {
			step.args[at] = "{t}" + step.args[at]
		}
	}
	return &tagged
}

func diffClusterPair(t *testing.T, url string) (direct, proxied *diffSide) {
	side := func(addr string) *diffSide {
		control, err := diffDial(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { control.nc.Close() })
		_, port, _ := strings.Cut(addr, ":")
		return &diffSide{addr: addr, control: control, port: port}
	}
	return side(testredis.Start(t).Addr()), side(proxytest.Start(t, url, nil).Addr)
}

func diffClusterHold(t *testing.T, c *diffConversation, direct, proxied *diffSide, proto string) {
	want, wantErr := c.hold(direct, proto, false)
	got, gotErr := c.hold(proxied, proto, false)
	if wantErr != nil || gotErr != nil {
		t.Errorf("directly: %v; through the proxy: %v", wantErr, gotErr)
	}
	for i := range min(len(want), len(got)) {
		step := want[i].step
		if want[i].compare == got[i].compare {
			continue
		}
		if !diffClusterMayDiffer(step) {
			t.Errorf("line %d, %s:\n  one Redis: %s\n  a cluster: %s", step.line, step.text,
				diffShow(want[i].compare), diffShow(got[i].compare))
			return
		}
	}
}

func diffClusterMayDiffer(step diffStep) bool {
	call := strings.ToLower(strings.Join(step.args, " "))
	for _, e := range diffClusterExceptions {
		for prefix := range strings.SplitSeq(e.calls, ",") {
			if call == prefix || strings.HasPrefix(call, prefix+" ") {
				return true
			}
		}
	}
	return false
}
