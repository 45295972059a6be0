package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"lockproxy/internal/cluster"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// monitored reads what a node runs, and returns the arguments of the next n commands with a name.
func monitored(t *testing.T, node *testredis.Server, command string) (next func(n int) []string) {
	t.Helper()
	nc, err := net.Dial("tcp", node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(testwait.Deadline())
	nc.Write([]byte("MONITOR\r\n"))
	in := bufio.NewReader(nc)
	if line, err := in.ReadString('\n'); err != nil || line != ok {
		t.Fatalf("MONITOR: %q, %v", line, err)
	}
	return func(n int) (args []string) {
		t.Helper()
		for len(args) < n {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("MONITOR after %q: %v", args, err)
			}
			if _, arg, is := strings.Cut(line, ` "`+command+`" "`); is {
				args = append(args, strings.TrimSuffix(arg, "\"\r\n"))
			}
		}
		return args
	}
}

// A node runs what one client has written before what another writes later.
func TestWriteIsInOrderOfOthers(t *testing.T) {
	c := six(t)
	cl := cluster.New(c.Addrs())
	one, two := openAt(t, cl), openAt(t, cl)
	key := keyAt(t, c, 2, "order")
	for _, k := range []*client{one, two} {
		k.expect("GET "+key, "$-1\r\n")
	}
	next := monitored(t, c.Nodes[2], "GETRANGE")
	const trials = 50
	wrong := 0
	for i := range trials {
		c.Nodes[2].Pause() // when it goes on it looks at both, in the order in which they came
		first := fmt.Sprintf("GETRANGE %s %d %d", key, 1, i)
		second := fmt.Sprintf("GETRANGE %s %d %d", key, 2, i)
		one.send(first)
		two.send(second)
		c.Nodes[2].Resume()
		one.reply()
		two.reply()
		if got := next(2); got[0] != fmt.Sprintf(`%s" "1" "%d`, key, i) {
			wrong++
		}
	}
	if wrong > trials/5 { // the kernel may deliver them in another order
		t.Errorf("%d of %d were run in another order", wrong, trials)
	}
}

// A client's first request for a node need not wait for a connection, so nobody overtakes it.
func TestFirstRequestIsInOrderOfOthers(t *testing.T) {
	c := six(t)
	cl := cluster.New(c.Addrs())
	two := openAt(t, cl)
	key := keyAt(t, c, 2, "list")
	two.expect("DEL "+key, ":0\r\n")
	var dialed atomic.Int32
	counting := func(ctx context.Context, addr string, setup [][]string) (net.Conn, error) {
		nc, err := dialer(ctx, addr, setup)
		dialed.Add(1)
		return nc, err
	}
	nc, err := cl.Open(t.Context(), cluster.Options{Dial: counting, Timeout: dialTimeout,
		Early: true, Failure: failure})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	one := &client{t, nc, bufio.NewReader(nc)}
	testwait.Until(t, "it has connections to all masters", func() bool { return dialed.Load() == 3 })
	one.send("BLPOP " + key + " 0")
	testwait.Until(t, "BLPOP waits", func() bool {
		return strings.Contains(c.Nodes[2].Ask("CLIENT", "LIST"), " cmd=blpop ")
	})
	two.send("RPUSH "+key+" x", "LLEN "+key)
	two.replies(":1\r\n", ":0\r\n")
	if got := one.reply(); !strings.HasSuffix(got, "\r\nx\r\n") {
		t.Errorf("BLPOP: %q", got)
	}
}

// A silent node does not delay clients that do not need it, neither at the login nor at the end.
func TestSilentNodeDelaysNobody(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	cl := cluster.New(c.Addrs())
	here := keyAt(t, c, 0, "k")
	openAt(t, cl).expect("GET "+here, "$-1\r\n")
	before := openAt(t, cl)
	for !strings.Contains(before.ask("CLIENT INFO"), " laddr="+c.Nodes[0].Addr()+" ") {
		before = openAt(t, cl) // until the other is the default node
	}
	c.Nodes[1].Pause()
	defer c.Nodes[1].Resume()
	for range 6 { // whichever node is the default
		k := openAt(t, cl)
		k.send("GET " + here)
		if got := k.reply(); got != "$-1\r\n" {
			t.Errorf("GET: %q", got)
		}
	}
	before.send("CLIENT SETNAME me", "HELLO 3", "GET "+here, "QUIT")
	before.reply()
	before.reply()
	before.replies("_\r\n", ok)
}
