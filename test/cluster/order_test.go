package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// orderKind is two requests of which the first reaches the proxy a little earlier than the second.
// Each is found in MONITOR's feed by its own word.
type orderKind struct {
	name          string
	first, second func(key, other string) string
	fresh         bool // the first comes by a new connection
}

var orderKinds = []orderKind{
	{name: "BLPOP and push",
		first:  func(key, _ string) string { return "BLPOP " + key + " 1" },
		second: func(key, _ string) string { return "RPUSH " + key + " x" }},
	{name: "SUBSCRIBE and PUBLISH", fresh: true,
		first:  func(key, _ string) string { return "SUBSCRIBE " + key },
		second: func(key, _ string) string { return "PUBLISH " + key + " x" }},
	{name: "plain and plain",
		first:  func(key, _ string) string { return "GET " + key },
		second: func(_, other string) string { return "GET " + other }},
	{name: "transaction and plain",
		first:  func(key, _ string) string { return "MULTI|SET " + key + " 1|EXEC" },
		second: func(_, other string) string { return "GET " + other }},
	{name: "blocking first of all", fresh: true,
		first:  func(key, _ string) string { return "BLPOP " + key + " 1" },
		second: func(key, _ string) string { return "RPUSH " + key + " x" }},
}

// orderTrials tries a kind, and returns how often the second request was run first.
func orderTrials(t *testing.T, kind orderKind, p *proxytest.Proxy, node *testredis.Server,
	keyOf func(n int) string, gap time.Duration, trials int) (wrong int) {
	t.Helper()
	monitor := proxytest.Dial(t, node.Addr())
	monitor.Expect("MONITOR", "+OK\r\n")
	second := proxytest.SharedClient(t, p.Addr)
	for n := range trials {
		key, other := keyOf(2*n), keyOf(2*n+1)
		first := proxytest.Dial(t, p.Addr)
		if !kind.fresh {
			first.Expect("PING", "+PONG\r\n")
			time.Sleep(5 * time.Millisecond) // its own connections are open by then
		}
		first.Send(strings.Split(kind.first(key, other), "|")...)
		time.Sleep(gap)
		second.Expect(kind.second(key, other), "…")
		if secondCameFirst(monitor, kind.first(key, other), kind.second(key, other)) {
			wrong++
		}
		first.Close()
	}
	return wrong
}

// secondCameFirst reads MONITOR's feed until it has seen both requests.
func secondCameFirst(monitor *proxytest.Conn, first, second string) bool {
	monitor.T.Helper()
	words := func(request string) string {
		parts := strings.Split(request, "|")
		fields := strings.Fields(parts[len(parts)/2])
		return fmt.Sprintf("%q %q", fields[0], fields[1])
	}
	seen := 0
	monitor.SetReadDeadline(testwait.Deadline())
	for wrong := false; ; {
		line, err := monitor.In.ReadString('\n')
		if err != nil {
			monitor.T.Fatalf("MONITOR: %v, before %q and %q", err, first, second)
		}
		switch {
		case strings.Contains(line, words(second)):
			wrong = wrong || seen == 0
			seen++
		case strings.Contains(line, words(first)):
			seen++
		default:
			continue
		}
		if seen == 2 {
			return wrong
		}
	}
}

// What reaches the proxy first its node runs first: no more often otherwise than in front of one
// Redis, where the requests of two clients come just as close.
func TestClusterOrder(t *testing.T) {
	c := testredis.StartCluster(t, 3, 0)
	node := c.Nodes[1] // not that of the channels
	cluster, alone := proxytest.Start(t, c.URL(), nil), testredis.Start(t)
	single := proxytest.Start(t, alone.URL(), nil)
	const trials, gap = 200, 100 * time.Microsecond
	for _, kind := range orderKinds {
		at, tag := node, tagOf(t, c, node)
		if strings.Contains(kind.name, "PUBLISH") {
			at = c.Nodes[0]
		}
		key := func(n int) string { return fmt.Sprintf("{%s}%d", tag, n) }
		wrong := orderTrials(t, kind, cluster, at, key, gap, trials)
		baseline := orderTrials(t, kind, single, alone, key, gap, trials)
		t.Logf("%s: %d of %d out of order, in front of one Redis %d", kind.name, wrong, trials,
			baseline)
		allowed := baseline + trials/50
		if kind.fresh { // the proxy accepts a client next to what it reads from others
			allowed = baseline + trials/20
		}
		if wrong > allowed {
			t.Errorf("%s, %v apart: %d of %d out of order, in front of one Redis %d", kind.name,
				gap, wrong, trials, baseline)
		}
	}
}

// tagOf is a hash tag of which a node has the slot.
func tagOf(t *testing.T, c *testredis.Cluster, node *testredis.Server) string {
	t.Helper()
	for i := 0; ; i++ {
		if tag := fmt.Sprint("tag", i); c.MasterOf(c.Slot(tag)) == node {
			return tag
		}
	}
}
