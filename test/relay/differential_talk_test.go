package relay_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// A diffSide is one of the two compared ways to a Redis, and a direct connection to that Redis.
type diffSide struct {
	addr    string
	proxied bool
	control *diffConn
	port    string
	letIn   func() // returns when Redis has let in those that have come; nil for none
}

// A diffConn is a raw connection.
type diffConn struct {
	nc   net.Conn
	in   *bufio.Reader
	last []string // the last call
}

func diffDial(addr string) (*diffConn, error) {
	nc, err := proxytest.TryDial(addr)
	if err != nil {
		return nil, err
	}
	return &diffConn{nc: nc, in: bufio.NewReaderSize(nc, 64<<10)}, nil
}

func (c *diffConn) send(args ...string) {
	c.last = args
	c.nc.Write(wire.Append(nil, args...)) // a failure shows in what is read
}

// do sends a call and reads its one reply.
func (c *diffConn) do(args ...string) string {
	c.send(args...)
	return c.reply()
}

// reply reads one reply, or says in brackets why there is none.
func (c *diffConn) reply() string {
	raw, err := c.read()
	switch {
	case err == nil:
		return raw
	case errors.Is(err, os.ErrDeadlineExceeded):
		return raw + "(nothing comes)"
	}
	return raw + "(closed)"
}

func (c *diffConn) read() (string, error) {
	c.nc.SetReadDeadline(testwait.Deadline())
	return wire.ReadReply(c.in, wire.PushesWithin)
}

func (c *diffConn) closeWrite() error {
	return c.nc.(interface{ CloseWrite() error }).CloseWrite()
}

// rest reads until the connection is closed, by reset or not.
func (c *diffConn) rest() string {
	c.nc.SetReadDeadline(testwait.Deadline())
	raw, err := io.ReadAll(c.in)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return string(raw) + "(not closed)"
	}
	return string(raw) + "(closed)"
}

// A diffEvent is the outcome of a step.
type diffEvent struct {
	step    diffStep
	reply   string // as it came, several one after the other
	compare string // after normalisation
}

// diffTalk is one conversation being held with one side.
type diffTalk struct {
	side   *diffSide
	proto  string
	conns  map[string]*diffConn
	order  []string
	vars   map[string]string
	sent   bool // all calls are sent
	locked bool // a password has been set
}

// leftOut reports whether the conversation is not held here: see its limit.
func (c *diffConversation) leftOut() bool {
	return c.limit == "dedicated" && !proxytest.Dedicated ||
		c.limit == "redis" && testredis.IsValkey() ||
		c.limit == "before 7.2" && testredis.Since(7, 2)
}

// pipelineable reports whether no step of the conversation needs an earlier reply.
func (c *diffConversation) pipelineable() bool {
	if c.limit == "apart" && testredis.Since(7, 2) {
		return false
	}
	for _, step := range c.steps {
		if step.conn != "" || step.directive != "" || step.capture != "" || step.closed ||
			len(step.args) == 0 || slices.Contains(step.args, "$port") {
			return false
		}
	}
	return len(c.steps) > 0
}

// hold holds the conversation and returns the outcome of each step. It ends early when a reply is
// missing. Pipelined, it sends all calls before it reads the first reply.
func (c *diffConversation) hold(side *diffSide, proto string,
	pipelined bool) (events []diffEvent, err error) {
	talk := &diffTalk{side: side, proto: proto, conns: map[string]*diffConn{},
		vars: map[string]string{"port": side.port}}
	defer func() {
		for _, conn := range talk.conns {
			conn.nc.Close()
		}
	}()
	for _, clean := range [][]string{{"FLUSHALL"}, {"FUNCTION", "FLUSH"}, {"SCRIPT", "FLUSH"},
		{"SLOWLOG", "RESET"}, {"CONFIG", "RESETSTAT"}} {
		if reply := side.control.do(clean...); reply != "+OK\r\n" {
			return nil, fmt.Errorf("%v is answered %q", clean, reply)
		}
	}
	if pipelined {
		conn, err := talk.open("")
		if err != nil {
			return nil, err
		}
		var all []byte
		for _, step := range c.steps {
			all = wire.Append(all, step.args...)
		}
		talk.sent = true
		go conn.nc.Write(all) // ends when all is written, or the connection is closed below
	}
	for _, step := range c.steps {
		event, err := talk.do(step)
		if err != nil {
			return events, fmt.Errorf("line %d, %s: %w", step.line, step.text, err)
		}
		events = append(events, event)
	}
	// What has not been read must also be the same.
	for _, name := range talk.order {
		conn := talk.conns[name]
		step := diffStep{text: "at the end, on connection @" + name, conn: name, closed: true}
		if conn.closeWrite() == nil {
			raw := conn.rest()
			events = append(events, diffEvent{step, raw, diffNormal(nil, raw)})
		}
	}
	return events, nil
}

func (t *diffTalk) do(step diffStep) (event diffEvent, err error) {
	event.step = step
	switch step.directive {
	case "blocked":
		return event, t.waitFor("INFO clients", "\r\nblocked_clients:"+step.args[0]+"\r\n")
	case "until":
		return event, t.waitFor(step.args[0], step.args[1])
	case "locked":
		return event, t.waitLocked()
	case "busy":
		return event, t.waitFor("PING", "-BUSY ")
	}
	conn := t.conns[step.conn]
	if conn == nil {
		if conn, err = t.open(step.conn); err != nil {
			return event, err
		}
	}
	if t.side.letIn != nil && !t.locked && slices.Contains(step.args, "requirepass") {
		t.locked = true // from now on nobody is let in
		conn.nc.SetReadDeadline(testwait.Deadline())
		io.WriteString(conn.nc, "PING\r\n") // when that is answered the client has come
		if _, err := conn.in.ReadString('\n'); err != nil {
			return event, err
		}
		t.side.letIn()
	}
	switch step.directive {
	case "":
	case "send":
		_, err = io.WriteString(conn.nc, strings.Join(step.args, ""))
		return event, err
	case "closewrite":
		return event, conn.closeWrite()
	case "close":
		return event, conn.nc.Close()
	default:
		return event, errors.New("unknown directive")
	}

	switch {
	case t.sent:
		conn.last = step.args
	case len(step.args) > 0:
		conn.send(t.expand(conn, step.args)...)
	}
	var raw strings.Builder
	switch {
	case t.side.proxied && diffStaysOpen[step.text] != "":
		raw.WriteString(conn.do("PING"))
	case step.closed:
		raw.WriteString(conn.rest())
	default:
		for range step.replies {
			reply := conn.reply()
			raw.WriteString(reply)
			// Valkey 8.0 refuses UNSUBSCRIBE of a client that has not subscribed.
			if len(step.args) > 0 && strings.HasPrefix(reply, "-") {
				break
			}
		}
	}
	event.reply = raw.String()
	if step.capture != "" {
		m := step.pattern.FindStringSubmatch(event.reply)
		if m == nil {
			return event, fmt.Errorf("%q has no $%s", event.reply, step.capture)
		}
		t.vars[step.capture] = m[1]
		return event, nil
	}
	event.compare = diffNormal(conn.last, event.reply)
	if strings.HasSuffix(event.reply, "(nothing comes)") {
		return event, fmt.Errorf("only %q comes", event.reply)
	}
	return event, nil
}

func (t *diffTalk) open(name string) (*diffConn, error) {
	conn, err := diffDial(t.side.addr)
	if err != nil {
		return nil, err
	}
	t.conns[name] = conn
	t.order = append(t.order, name)
	if t.proto == "3" {
		if reply := conn.do("HELLO", "3"); !strings.HasPrefix(reply, "%") {
			return nil, fmt.Errorf("HELLO 3 is answered %q", reply)
		}
	}
	return conn, nil
}

// expand inserts the variables.
func (t *diffTalk) expand(conn *diffConn, args []string) []string {
	expanded := make([]string, len(args))
	for i, arg := range args {
		expanded[i] = arg
		if len(arg) > 1 && arg[0] == '$' {
			if value, ok := t.vars[arg[1:]]; ok {
				expanded[i] = value
			}
		}
	}
	return expanded
}

// waitFor asks until the reply contains text, since Redis sends no notification.
func (t *diffTalk) waitFor(call, text string) error {
	reply := ""
	if !testwait.Holds(func() bool {
		reply = t.side.control.do(strings.Fields(call)...)
		return strings.Contains(reply, text)
	}) {
		return fmt.Errorf("%s is still answered %q", call, reply)
	}
	return nil
}

// waitLocked connects again and again: the proxy asks only once a second whether Redis lets new
// clients in.
func (t *diffTalk) waitLocked() (err error) {
	locked := testwait.Holds(func() bool {
		var conn *diffConn
		if conn, err = diffDial(t.side.addr); err != nil {
			return true
		}
		defer conn.nc.Close()
		return strings.HasPrefix(conn.do("PING"), "-NOAUTH")
	})
	if err == nil && !locked {
		err = errors.New("new connections are let in without a login")
	}
	return err
}

// diffCompare reports where the proxied conversation differs from the direct one.
func diffCompare(t *testing.T, file string, direct, proxied []diffEvent) {
	t.Helper()
	for i := range min(len(direct), len(proxied)) {
		d, p := direct[i], proxied[i]
		if d.compare == p.compare || diffStayedOpen(d, p) {
			continue
		}
		t.Errorf("%s:%d: %s\n direct:  %s\n proxied: %s", file, d.step.line, d.step.text,
			diffShow(d.compare), diffShow(p.compare))
	}
	if len(direct) != len(proxied) {
		t.Errorf("%s: %d steps directly, %d through the proxy", file, len(direct), len(proxied))
	}
}

func diffStayedOpen(direct, proxied diffEvent) bool {
	return diffStaysOpen[direct.step.text] != "" && direct.reply == "(closed)" &&
		strings.HasPrefix(proxied.reply, "-UPSTREAM ")
}

func diffShow(s string) string {
	if len(s) > 3000 {
		s = s[:3000] + "…"
	}
	return strconv.Quote(s)
}

// diffIsError reports whether a reply is an error.
func diffIsError(reply string) bool {
	return strings.HasPrefix(reply, "-") || strings.HasPrefix(reply, "!")
}
