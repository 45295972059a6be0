package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// puppets are nodes that a test plays. A Conn dials them by name.
type puppets struct {
	t     *testing.T
	cl    *Cluster
	conn  *Conn
	in    *bufio.Reader
	calls map[string]chan net.Conn // by node; the other ends of what was dialed
	dials map[string]func() error  // what dialing waits for, if it does
	setup map[string]string        // by node; what the last connection was to send first; see dial
	mu    sync.Mutex               // guards setup
}

// opens has the client's first request answered by a node, and returns the connection to that.
func (p *puppets) opens(name string) *puppet {
	p.t.Helper()
	p.send("PING")
	n := p.at(name)
	n.hears("PING")
	n.says("+PONG")
	p.replies("+PONG")
	return n
}

// await waits until something is true of the Conn, whose mu is held meanwhile.
func (p *puppets) await(done func() bool) {
	p.t.Helper()
	isDone := func() bool {
		p.conn.mu.Lock()
		defer p.conn.mu.Unlock()
		return done()
	}
	testwait.Until(p.t, "it comes true", isDone)
}

// afterDelays returns behind what the Conn does so many times its first delay later.
func (p *puppets) afterDelays(n time.Duration) {
	p.t.Helper()
	passed := make(chan bool)
	p.conn.mu.Lock()
	p.conn.after(n*firstDelay, func() { close(passed) })
	p.conn.mu.Unlock()
	testwait.For(p.t, "some delays have passed", passed)
}

// newPuppets makes nodes, of which the first serves all slots.
func newPuppets(t *testing.T, names ...string) *puppets {
	p := &puppets{t: t, cl: New(names), calls: map[string]chan net.Conn{},
		dials: map[string]func() error{}, setup: map[string]string{}}
	for _, name := range names {
		p.calls[name] = make(chan net.Conn, 10)
	}
	p.cl.slots.Store(allAt(names[0]))
	p.cl.refreshing = true // so that no refresh asks them
	p.conn = newConn(p.cl, Options{Dial: p.dial, Timeout: time.Minute,
		Failure: func(addr string, sent bool, err error) []byte {
			return resp.AppendError(nil, "UPSTREAM "+addr+": sent "+strconv.FormatBool(sent))
		}})
	p.conn.nodes.closing = testwait.Patience // a puppet can be slow
	p.cl.add(p.conn)
	p.conn.SetReadDeadline(testwait.Deadline())
	p.in = bufio.NewReader(p.conn)
	t.Cleanup(func() { p.conn.Close() })
	return p
}

// allAt is a map in which one node serves all slots.
func allAt(addr string) *slotMap {
	m := mapOf(1, func(int) int { return 0 })
	m.masters[0] = addr
	return m
}

// dial opens a connection, on which setup is not sent.
func (p *puppets) dial(ctx context.Context, addr string, setup [][]string) (net.Conn, error) {
	var lines []string
	for _, words := range setup {
		lines = append(lines, strings.Join(words, " "))
	}
	p.mu.Lock()
	p.setup[addr] = strings.Join(lines, "; ")
	p.mu.Unlock()
	if wait := p.dials[addr]; wait != nil {
		if err := wait(); err != nil {
			return nil, err
		}
	}
	here, there := net.Pipe()
	p.calls[addr] <- there
	return here, nil
}

// send writes requests as one.
func (p *puppets) send(lines ...string) {
	p.t.Helper()
	var raw []byte
	for _, line := range lines {
		raw = wire.Append(raw, strings.Fields(line)...)
	}
	if _, err := p.conn.Write(raw); err != nil {
		p.t.Fatal(err)
	}
}

// replies compares the client's replies with those wanted, line by line.
func (p *puppets) replies(want ...string) {
	p.t.Helper()
	for _, w := range want {
		got, err := p.in.ReadString('\n')
		if strings.TrimRight(got, "\r\n") != w {
			p.t.Fatalf("reply %q, %v, not %q", got, err, w)
		}
	}
}

// ends reads the end of the client's connection and compares its error with the one wanted.
func (p *puppets) ends(want error) {
	p.t.Helper()
	if line, err := p.in.ReadString('\n'); !errors.Is(err, want) {
		p.t.Fatalf("%q, %v instead of %v", line, err, want)
	}
}

// puppet is the other end of a connection to a node.
type puppet struct {
	t  *testing.T
	nc net.Conn
	in *bufio.Reader
}

// at is the connection that was dialed to a node.
func (p *puppets) at(name string) *puppet {
	p.t.Helper()
	nc := testwait.For(p.t, name+" is asked", p.calls[name])
	p.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(testwait.Deadline())
	return &puppet{p.t, nc, bufio.NewReader(nc)}
}

// hears reads requests and compares them with those wanted.
func (n *puppet) hears(want ...string) {
	n.t.Helper()
	for _, w := range want {
		if got := n.next(); got != w {
			n.t.Fatalf("the node is asked %q, not %q", got, w)
		}
	}
}

// next reads a request.
func (n *puppet) next() string {
	n.t.Helper()
	words, err := wire.ReadCommand(n.in)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Join(words, " ")
}

func (n *puppet) says(lines ...string) {
	n.t.Helper()
	if _, err := n.nc.Write([]byte(strings.Join(lines, "\r\n") + "\r\n")); err != nil {
		n.t.Error(err) // not Fatal, which only the test's own goroutine may call
	}
}

// refreshed updates the map to one in which one node serves all slots. late says that the Conn is
// not told yet.
func (p *puppets) refreshed(addr string, late bool) {
	if late {
		p.cl.slots.Store(allAt(addr))
		return
	}
	p.cl.update(allAt(addr), 1, time.Now())
}

// awaitHeld waits until the requests for a slot are held.
func (p *puppets) awaitHeld() {
	p.t.Helper()
	p.await(func() bool { return len(p.conn.order.holds) > 0 })
}

var slotK = strconv.Itoa(Slot([]byte("k")))

// The key 06S of these tests is in slot 0, next to having no slot.

// A Conn that gets a MOVED applies the newest map, which can concern other slots too. Earlier
// requests for these are not overtaken.
func TestOrderWhenMovedBringsANewMap(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("GET other", "SET 06S 1")
	a := p.at("a:1")
	a.hears("GET other", "SET 06S 1")
	p.refreshed("b:1", true)
	a.says("-MOVED " + strconv.Itoa(Slot([]byte("other"))) + " b:1")
	b := p.at("b:1")
	b.hears("GET other")
	p.send("SET 06S 2")
	a.says("-MOVED 0 b:1")
	b.hears("SET 06S 1", "SET 06S 2")
	b.says("$-1", "+OK", "+OK")
	p.replies("$-1", "+OK", "+OK")
}

// Requests that could not be sent to a lost node go to its successor before those held behind them.
func TestOrderWhenANodeIsLost(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	lost := make(chan error)
	p.dials["a:1"] = func() error { return <-lost }
	p.send("SET 06S 1", "SET 06S 2")
	p.refreshed("b:1", false)
	p.send("SET 06S 3")
	lost <- errors.New("refused")
	b := p.at("b:1")
	b.hears("SET 06S 1", "SET 06S 2", "SET 06S 3")
	b.says("+1", "+2", "+3")
	p.replies("+1", "+2", "+3")
}

// Later requests wait for one that is redirected to a node while a third serves the slot by now.
func TestOrderOverThreeNodes(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1", "c:1")
	p.send("SET 06S 1", "SET 06S 2")
	a := p.at("a:1")
	a.hears("SET 06S 1", "SET 06S 2")
	a.says("-ASK 0 b:1")
	b := p.at("b:1")
	b.hears("ASKING", "SET 06S 1")
	p.refreshed("c:1", false)
	p.send("SET 06S 3")
	a.says("-MOVED 0 c:1")
	p.afterDelays(10)
	b.says("+OK", "-MOVED 0 c:1")
	c := p.at("c:1")
	c.hears("SET 06S 1", "SET 06S 2", "SET 06S 3")
	c.says("+1", "+2", "+3")
	p.replies("+1", "+2", "+3")
}

// Requests that a node has redirected wait until it has answered all for the slot, also if another
// node serves the slot by then.
func TestOrderWhenASlotMovesOn(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1", "c:1")
	p.send("SET 06S 1", "SET 06S 2")
	a := p.at("a:1")
	a.hears("SET 06S 1", "SET 06S 2")
	a.says("-MOVED 0 b:1")
	p.awaitHeld()
	p.send("SET 06S 3")
	a.says("-MOVED 0 b:1")
	b := p.at("b:1")
	b.hears("SET 06S 1", "SET 06S 2", "SET 06S 3")
	p.refreshed("c:1", false)
	p.send("SET 06S 4")
	b.says("-MOVED 0 c:1", "+2", "-MOVED 0 c:1")
	c := p.at("c:1")
	c.hears("SET 06S 1", "SET 06S 3", "SET 06S 4")
	c.says("+1", "+3", "+4")
	p.replies("+1", "+2", "+3", "+4")
}

// When a slot moves, a transaction overtakes no earlier request, and no later one overtakes it.
func TestOrderAroundATransaction(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("SET 06S 0", "MULTI", "SET 06S 1", "EXEC", "SET 06S 2", "GET 06S")
	a := p.at("a:1")
	a.hears("SET 06S 0", "MULTI", "SET 06S 1", "EXEC", "SET 06S 2", "GET 06S")
	moved := "-MOVED 0 b:1"
	a.says(moved, "+OK", moved, "-EXECABORT Transaction discarded", moved, moved)
	b := p.at("b:1")
	b.hears("SET 06S 0")
	b.says("+OK")
	b.hears("MULTI", "SET 06S 1", "EXEC")
	b.says("+OK", "+QUEUED", "*1", "+OK")
	b.hears("SET 06S 2", "GET 06S")
	b.says("+OK", "+2")
	p.replies("+OK", "+OK", "+QUEUED", "*1", "+OK", "+OK", "+2")
}

// A transaction waits for earlier requests for its slot at another node.
func TestTransactionWaitsForWhatWasBefore(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("SET 06S 0")
	a := p.at("a:1")
	a.hears("SET 06S 0")
	p.refreshed("b:1", false)
	a.hears("PING")
	p.send("MULTI", "SET 06S 1", "EXEC", "GET 06S")
	b := p.at("b:1")
	b.hears("MULTI", "SET 06S 1")
	b.says("+OK", "+QUEUED")
	a.says("-MOVED 0 b:1", "+PONG")
	b.hears("GET", "EXEC", "SET 06S 0")
	b.says("-ERR wrong number of arguments", "-EXECABORT Transaction discarded", "+OK")
	b.hears("MULTI", "SET 06S 1", "EXEC", "GET 06S")
	b.says("+OK", "+QUEUED", "*1", "+OK", "+1")
	p.replies("+OK", "+OK", "+QUEUED", "*1", "+OK", "+1")
}

// Requests of a transaction are not run outside of it when its node is lost.
func TestTransactionWhoseNodeIsLost(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("MULTI")
	a := p.at("a:1")
	a.hears("MULTI")
	a.says("+OK")
	p.replies("+OK")
	p.send("TIME") // which it doesn't read, so that nothing more can be sent
	p.awaitSent("a:1", 1)
	p.send("SET 06S 1", "EXEC")
	p.refreshed("b:1", true)
	a.nc.Close()
	p.replies("-UPSTREAM a:1: sent true", "-UPSTREAM a:1: sent false", "-UPSTREAM a:1: sent false")
	p.send("GET 06S")
	b := p.at("b:1")
	b.hears("GET 06S")
	b.says("$-1")
	p.replies("$-1")
}

// Requests behind a WATCH run after it, whichever node serves the slot. After a WATCH that has
// failed nothing is watched.
func TestOrderBehindAWatch(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("WATCH 06S", "GET 06S")
	a := p.at("a:1")
	a.hears("WATCH 06S", "GET 06S")
	a.says("-MOVED 0 b:1", "-MOVED 0 b:1")
	b := p.at("b:1")
	b.hears("WATCH 06S")
	b.says("+OK")
	b.hears("GET 06S")
	b.says("+1")
	p.replies("+OK", "+1")
	p.send("MULTI", "SET 06S 2", "EXEC")
	b.hears("MULTI", "SET 06S 2", "EXEC")
	b.says("+OK", "+QUEUED", "*-1")
	p.replies("+OK", "+QUEUED", "*-1")

	p.send("WATCH 06S")
	// the slot is moving all the while: its own node is asked each time
	for range maxTries + 1 {
		b.hears("WATCH 06S")
		b.says("-TRYAGAIN Multiple keys request during rehashing of slot")
	}
	p.replies("-TRYAGAIN Multiple keys request during rehashing of slot")
	p.send("WATCH other")
	a.hears("WATCH other")
	a.says("+OK")
	p.replies("+OK")
}

// A transaction behind a WATCH that could not be sent yet does nothing, and leaves nothing watched.
func TestTransactionBehindAWatchThatWaits(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("SET 06S 0")
	a := p.at("a:1")
	a.hears("SET 06S 0")
	p.refreshed("b:1", false)
	a.hears("PING")
	p.send("WATCH 06S", "MULTI", "SET 06S 1", "EXEC")
	b := p.at("b:1")
	b.hears("MULTI", "SET 06S 1", "DISCARD", "EXEC")
	b.says("+OK", "+QUEUED", "+OK", "-ERR EXEC without MULTI")
	a.says("-MOVED 0 b:1", "+PONG")
	b.hears("SET 06S 0", "WATCH 06S", "UNWATCH")
	b.says("+OK", "+OK", "+OK")
	p.replies("+OK", "+OK", "+OK", "+QUEUED", "*-1")
}

// A request that a node refuses because some of its keys have gone already does not run behind those
// that came later, which that node may have run.
func TestTryAgainWithOthersBehind(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("MSET {06S}1 first {06S}2 first", "SET {06S}1 second", "MGET {06S}1 {06S}2")
	a := p.at("a:1")
	a.hears("MSET {06S}1 first {06S}2 first", "SET {06S}1 second", "MGET {06S}1 {06S}2")
	const refused = "-TRYAGAIN Multiple keys request during rehashing of slot"
	a.says(refused, "+OK", refused)
	a.hears("MGET {06S}1 {06S}2") // nothing is behind it
	a.says("*2\r\n+second\r\n$-1")
	p.replies(refused, "+OK", "*2", "+second", "$-1")
}

// Two nodes that each name the other for a slot have half a second to agree: so long are the delays
// between all tries. A client does not see their redirections.
func TestNodesThatDisagree(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("SET 06S 1")
	a := p.at("a:1")
	a.hears("SET 06S 1")
	a.says("-MOVED 0 b:1")
	b := p.at("b:1")
	for i := range maxTries {
		n, other := b, "a:1"
		if i%2 == 1 {
			n, other = a, "b:1"
		}
		n.hears("SET 06S 1")
		n.says("-MOVED 0 " + other)
	}
	p.replies("-TRYAGAIN The nodes don't agree yet on who serves the slot")
	given := time.Duration(0)
	for tries := range maxTries {
		given += (&part{tries: tries}).delay()
	}
	if given.Round(100*time.Millisecond) != 500*time.Millisecond {
		t.Errorf("they are given %v", given)
	}
}

// A node that refuses a write is a replica, whatever the map says: another master runs it.
func TestWriteRefusedByAMasterOfTheMap(t *testing.T) {
	p := newPuppets(t, "a", "b")
	two := mapOf(2, func(slot int) int { return slot % 2 })
	copy(two.masters, []string{"a", "b"})
	p.cl.slots.Store(two)
	p.conn.mu.Lock()
	p.conn.nodes.applyMap(two)
	p.conn.nodes.dflt = p.conn.nodes.at("a")
	p.conn.mu.Unlock()
	p.send("LMPOP 0 l LEFT")
	a := p.at("a")
	a.hears("LMPOP 0 l LEFT")
	a.says("-READONLY You can't write against a read only replica.")
	b := p.at("b")
	b.hears("LMPOP 0 l LEFT")
	b.says("-ERR numkeys should be greater than 0")
	p.replies("-ERR numkeys should be greater than 0")
}
