package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/cluster"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

var lasting testredis.Lasting

// loops read the nodes of most tests' Conns.
var loops *eventloop.Loops

func TestMain(m *testing.M) {
	var err error
	if loops, err = eventloop.Start(1); err != nil {
		panic(err)
	}
	code := m.Run()
	loops.Stop()
	lasting.End()
	os.Exit(code)
}

// six is the cluster of all tests that leave it as it was: three masters, each with a replica.
func six(t *testing.T) *testredis.Cluster { return lasting.Cluster(t, 3, 1) }

// client speaks to a Conn as a test wants it.
type client struct {
	t  *testing.T
	nc *cluster.Conn
	in *bufio.Reader
}

// dialTimeout is so long that nothing is answered by its end.
const dialTimeout = time.Hour

func dialer(ctx context.Context, addr string, setup [][]string) (net.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(nc)
	for _, cmd := range setup {
		nc.Write(wire.Append(nil, cmd...))
		if _, err := wire.ReadReply(in, wire.Either); err != nil {
			nc.Close()
			return nil, err
		}
	}
	return nc, nil
}

func failure(addr string, sent bool, err error) []byte {
	if sent {
		return resp.AppendError(nil,
			"UPSTREAM "+addr+": whether the command ran is unknown: "+err.Error())
	}
	return resp.AppendError(nil, "UPSTREAM "+addr+": nothing was sent: "+err.Error())
}

func open(t *testing.T, c *testredis.Cluster) *client {
	t.Helper()
	return openAt(t, cluster.New(c.Addrs()))
}

// openAt opens a Conn whose nodes are read by a loop; some other tests have goroutines read them.
func openAt(t *testing.T, cl *cluster.Cluster) *client {
	t.Helper()
	nc, err := cl.Open(t.Context(), cluster.Options{Dial: dialer, Timeout: dialTimeout,
		Early: true, Failure: failure, Loops: loops})
	if err != nil {
		t.Fatal(err)
	}
	nc.SetClosing(testwait.Patience) // a node can be slow
	t.Cleanup(func() { nc.Close() })
	return &client{t, nc, bufio.NewReader(nc)}
}

func (c *client) send(lines ...string) {
	c.t.Helper()
	var out []byte
	for _, line := range lines {
		out = wire.Append(out, strings.Fields(line)...)
	}
	if _, err := c.nc.Write(out); err != nil {
		c.t.Fatal(err)
	}
}

// reply is the next reply, raw.
func (c *client) reply() string {
	c.t.Helper()
	got, err := c.tryReply()
	if err != nil {
		c.t.Fatalf("no reply: %v (so far %q)", err, got)
	}
	return got
}

func (c *client) tryReply() (string, error) {
	c.nc.SetReadDeadline(testwait.Deadline())
	return wire.ReadReply(c.in, wire.Either)
}

func (c *client) ask(line string) string {
	c.t.Helper()
	c.send(line)
	return c.reply()
}

func (c *client) expect(line, want string) {
	c.t.Helper()
	if got := c.ask(line); got != want {
		c.t.Errorf("%s: %q, not %q", line, got, want)
	}
}

// mayNot expects that Redis refuses a user a command.
func (c *client) mayNot(command string) {
	c.t.Helper()
	end := " has no permissions to run the '" + strings.ToLower(command) + "' command\r\n"
	if got := c.ask(command); !strings.HasPrefix(got, "-NOPERM ") || !strings.HasSuffix(got, end) {
		c.t.Errorf("%s: %q", command, got)
	}
}

// directly returns what a node answers a client of its own.
func directly(t *testing.T, node *testredis.Server, lines ...string) (replies []string) {
	t.Helper()
	nc, err := net.Dial("tcp", node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetReadDeadline(testwait.Deadline())
	in := bufio.NewReader(nc)
	for _, line := range lines {
		nc.Write(wire.Append(nil, strings.Fields(line)...))
		reply, err := wire.ReadReply(in, wire.Either)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		replies = append(replies, reply)
	}
	return replies
}

func TestPipelineOverSlotsKeepsTheOrder(t *testing.T) {
	t.Parallel()
	c := open(t, six(t))
	const n = 3000
	go func() {
		for i := range n {
			c.nc.Write(wire.Append(wire.Append(nil, "SET", fmt.Sprint("order:", i),
				fmt.Sprint(i)), "GET", fmt.Sprint("order:", i)))
		}
	}()
	for i := range n {
		if got := c.reply(); got != "+OK\r\n" {
			t.Fatalf("SET %d: %q", i, got)
		}
		want := fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)
		if got := c.reply(); got != want {
			t.Fatalf("GET %d: %q", i, got)
		}
	}
}

func TestSplitsAndJoins(t *testing.T) {
	c := open(t, six(t))
	c.expect("FLUSHALL", "+OK\r\n")
	c.expect("DBSIZE", ":0\r\n")
	c.expect("MSET a 1 b 2 c 3 d 4", "+OK\r\n")
	c.expect("MGET a nothing c b a d",
		"*6\r\n$1\r\n1\r\n$-1\r\n$1\r\n3\r\n$1\r\n2\r\n$1\r\n1\r\n$1\r\n4\r\n")
	c.expect("EXISTS a b c d e a", ":5\r\n")
	c.expect("TOUCH a b c", ":3\r\n")
	c.expect("DBSIZE", ":4\r\n")
	c.expect("DEL a b zz", ":2\r\n")
	c.expect("UNLINK a b c d", ":2\r\n")
	c.expect("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n")
	c.expect("SINTER a b", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	c.expect("MSETNX a 1 b 2", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	c.expect("MSETNX {x}a 1 {x}b 2", ":1\r\n")
	c.expect("PING", "+PONG\r\n")
	c.expect("SELECT 0", "+OK\r\n")
	refused := []string{"SELECT 1", "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0"}
	for i, want := range directly(t, six(t).Nodes[0], refused...) {
		c.expect(refused[i], want)
	}
	c.expect("EVAL return{KEYS[1],ARGV[1]} 1 a b", "*2\r\n$1\r\na\r\n$1\r\nb\r\n")
	sha := "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
	c.send("SCRIPT FLUSH")
	c.reply()
	c.nc.Write(wire.Append(nil, "SCRIPT", "LOAD", "return 1"))
	if got := c.reply(); got != "$40\r\n"+sha+"\r\n" {
		t.Fatal(got)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		c.expect("EVALSHA "+sha+" 1 "+key, ":1\r\n")
	}
	c.expect("SCRIPT EXISTS "+sha, "*1\r\n:1\r\n")
}

// A slot that moves under a pipeline: every reply is right, in order, and no write is lost or
// overtaken.
func TestSlotMovesUnderAPipeline(t *testing.T) {
	c := testredis.StartCluster(t, 3, 0)
	cl := cluster.New(c.Addrs())
	slot := c.Slot("{hot}")
	stop, done := make(chan struct{}), make(chan int)
	k := openAt(t, cl)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			for i := range 20 {
				key := fmt.Sprintf("{hot}%d", i)
				k.nc.Write(wire.Append(wire.Append(nil, "RPUSH", key, fmt.Sprint(n)),
					"LRANGE", key, "-1", "-1"))
			}
			for i := range 20 {
				if got := k.reply(); got != fmt.Sprintf(":%d\r\n", n+1) {
					t.Errorf("RPUSH %d of key %d: %q", n, i, got)
					return
				}
				want := fmt.Sprintf("*1\r\n$%d\r\n%d\r\n", len(fmt.Sprint(n)), n)
				if got := k.reply(); got != want {
					t.Errorf("LRANGE after %d of key %d: %q", n, i, got)
					return
				}
			}
			n++
		}
	}()
	for range 3 {
		for _, to := range c.Nodes {
			c.Migrate(slot, to)
		}
	}
	close(stop)
	if n := <-done; n < 20 {
		t.Errorf("only %d rounds", n)
	}
}

// While some keys of a slot have moved, requests for all keys at one node are answered, and others
// get an error.
func TestSlotOnItsWay(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	k := open(t, c)
	k.expect("MSET {s}a 1 {s}b 2", "+OK\r\n")
	slot := c.Slot("{s}a")
	from := c.MasterOf(slot)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	m := c.BeginMigration(from, to, slot)
	m.MoveKey("{s}a")
	k.expect("GET {s}a", "$1\r\n1\r\n")
	k.expect("GET {s}b", "$1\r\n2\r\n")
	k.expect("SET {s}c 3", "+OK\r\n")
	k.expect("MGET {s}a {s}b", "-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
	m.MoveKeys()
	k.expect("MGET {s}a {s}b {s}c", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n")
	m.Finish()
	k.expect("MGET {s}a {s}b {s}c", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n")
}
