package relay_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// lossCommands has every command at which a session waits for a reply of its upstream, and one of
// each other way in which requests are passed on.
var lossCommands = []string{
	"GET k", "SET k v", "SET k v NX", "SETNX k v", "GETSET k v", "EVAL return(1) 0",
	"EVAL return(1) 1 k",
	"EVALSHA 0123456789012345678901234567890123456789 1 k", "SCRIPT LOAD return(1)", "SCRIPT KILL",
	"FCALL f 0",
	"MULTI", "EXEC", "DISCARD", "WATCH k", "UNWATCH", "SELECT 1", "AUTH default secret", "HELLO",
	"HELLO 3", "RESET",
	"QUIT", "POST", "SUBSCRIBE ch", "PSUBSCRIBE p*", "UNSUBSCRIBE", "MONITOR", "SYNC",
	"REPLCONF ACK 0", "REPLCONF GETACK",
	"BLPOP nothing 0.1", "XREAD BLOCK 100 STREAMS nothing 0", "WAIT 0 10", "WAITAOF 0 0 10",
	"PUBLISH ch m", "DEL n",
	"CLIENT ID", "CLIENT PAUSE 10 WRITE", "CLIENT PAUSE 10", "CLIENT UNPAUSE", "CLIENT REPLY ON",
	"CLIENT REPLY OFF",
	"CLIENT REPLY SKIP", "CLIENT SETNAME n", "CLIENT TRACKING ON", "CLIENT KILL ID 1", "INFO",
	"INFO lockproxy", "COMMAND",
	"COMMAND COUNT", "COMMAND DOCS lock", "COMMAND GETKEYS LOCK k 600", "CLUSTER INFO", "READONLY",
	"NOSUCHCOMMAND",
	"LOCK free 600", "LOCK free 600 WAIT 1", "LOCK held 600 WAIT 0.1", "LOCK free 600 SESSION",
	"UNLOCK free", "UNLOCK free 1",
	"UNLOCK free FORCE", "RELOCK free 1 600", "LOCKINFO free", "LOCKSCAN 0", "FENCE free 1 GET k",
}

// lossSituation is the state of a client when it sends a command whose upstream connection is lost.
type lossSituation struct {
	name      string
	dedicated bool
	before    []string            // is answered before the loss
	with      func(string) string // sent instead of the command; nil is the command itself
	waiter    bool                // another client waits for a lock
}

var lossSituations = []lossSituation{
	{name: "new"},
	{name: "on a lane", before: []string{"PING", "PING"}},
	{name: "on a lane, RESP3", before: []string{"HELLO 3", "PING"}},
	{name: "in MULTI", before: []string{"PING", "MULTI", "GET k"}},
	{name: "subscribed", before: []string{"SUBSCRIBE other"}},
	{name: "subscribed, RESP3", before: []string{"HELLO 3", "SUBSCRIBE other"}},
	{name: "watching", before: []string{"WATCH w"}},
	{name: "new, another waits for a lock", waiter: true},
	{name: "on a lane, another waits for a lock", before: []string{"PING", "PING"}, waiter: true},
	{name: "after a pipeline", before: []string{"PING", "PING"}, with: func(c string) string {
		return "GET k\nINCR n\n" + c + "\nGET k"
	}},
	{name: "new, between changes of database", with: func(c string) string {
		return "SELECT 1\n" + c + "\nSELECT 0\nPING"
	}},
	{name: "after POST", with: func(c string) string { return "POST\n" + c + "\nPING" }},
	{name: "after LOCK WAIT", before: []string{"PING", "PING"}, with: func(c string) string {
		return "LOCK held 600 WAIT 0.1\n" + c
	}},
	{name: "within FENCE", before: []string{"PING", "PING"}, with: func(c string) string {
		return "FENCE free 1 " + c
	}},
	{name: "muted", before: []string{"PING"}, with: func(c string) string {
		return "CLIENT REPLY OFF\n" + c + "\nCLIENT REPLY ON"
	}},
	{name: "dedicated, new", dedicated: true},
	{name: "dedicated, used", dedicated: true, before: []string{"PING", "GET k"}},
	{name: "dedicated, in MULTI", dedicated: true, before: []string{"MULTI"}},
	{name: "dedicated, another waits for a lock", dedicated: true, waiter: true},
	{name: "dedicated, after a pipeline", dedicated: true, with: func(c string) string {
		return "GET k\nINCR n\n" + c + "\nGET k"
	}},
}

// A client whose upstream connection is lost, in any state and with any request, is answered or
// closed, and afterwards closed or served. Each command is lost in either way, in another quarter
// of the situations from run to run; make long SUITE=torture has it in each.
func TestNoSilenceAfterALoss(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	held := fmt.Sprintf("SET held %d", time.Now().Add(time.Hour).UnixMilli())
	proxytest.Dial(t, server.Addr()).Expect(held, "+OK\r\n")
	first := rand.IntN(4)
	t.Logf("quarter %d", first)
	slots := make(chan struct{}, 24)
	for i, in := range lossSituations {
		t.Run(in.name, func(t *testing.T) {
			t.Parallel()
			var wg sync.WaitGroup
			for j, command := range lossCommands {
				if (i+j)%4 != first && os.Getenv("LOCKPROXY_TEST_TORTURE") == "" {
					continue
				}
				reset := (i+j)/4%2 == 0
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					if err := in.lose(t, server, command, reset); err != nil {
						t.Errorf("%s, reset %v: %v", command, reset, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// lose sends a command, ends all connections to the upstream before the reply, and returns what is
// wrong with what the client is told.
func (in *lossSituation) lose(t *testing.T, server *testredis.Server, command string,
	reset bool) error {
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.Start(t, "redis://"+link.Addr(), func(cfg *proxy.Config) {
		cfg.Dedicated = in.dedicated
	})
	c, err := lossClient(p.Addr, in.before...)
	if err != nil {
		return err
	}
	defer c.Close()
	if in.waiter {
		waiter, err := lossClient(p.Addr, "PING", "PING")
		if err != nil {
			return err
		}
		defer waiter.Close()
		waiter.Write(wire.Append(nil, "LOCK", "held", "1000", "WAIT", "0"))
		if !testwait.Holds(func() bool { return p.Server.Stats().Locks.Waiters > 0 }) {
			return fmt.Errorf("the other doesn't wait: it was told %q", waiter.told())
		}
	}
	sent := command
	if in.with != nil {
		sent = in.with(command)
	}
	link.Hold()
	var out []byte
	for _, line := range strings.Split(sent, "\n") {
		out = wire.Append(out, strings.Fields(line)...)
	}
	had, read, looks := c.told(), p.Server.Stats().BytesIn+uint64(len(out)), 0
	c.Write(out)
	if !testwait.Holds(func() bool {
		looks++
		return link.Holding() || c.told() != had ||
			// a few are neither passed on nor answered
			looks > 15 && p.Server.Stats().BytesIn >= read
	}) {
		return errors.New("the request is not read")
	}
	if reset {
		link.Reset()
	} else {
		link.Cut()
	}
	link.Release()
	return c.isServedOrClosed()
}

// lossConn collects what its client is told.
type lossConn struct {
	net.Conn
	mu     sync.Mutex
	got    []byte // guarded by mu
	closed bool   // guarded by mu
}

func lossClient(addr string, before ...string) (*lossConn, error) {
	nc, err := proxytest.TryDial(addr)
	if err != nil {
		return nil, err
	}
	c := &lossConn{Conn: nc}
	go func() { // ends when the connection does, which the caller closes
		buf := make([]byte, 64<<10)
		for {
			n, err := nc.Read(buf)
			c.mu.Lock()
			c.got = append(c.got, buf[:n]...)
			c.closed = err != nil
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	for _, command := range before {
		had := c.told()
		nc.Write(wire.Append(nil, strings.Fields(command)...))
		if !testwait.Holds(func() bool { return c.told() != had }) {
			nc.Close()
			return nil, fmt.Errorf("%s is not answered", command)
		}
	}
	return c, nil
}

func (c *lossConn) told() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.got)
}

// isServedOrClosed asks until it is answered or closed.
func (c *lossConn) isServedOrClosed() error {
	const mark = "still-there"
	var probe []byte
	for _, line := range []string{"CLIENT REPLY ON", "DISCARD", "PING " + mark,
		// Redis refuses the first to one that has subscribed, and goes on telling it nothing.
		"UNSUBSCRIBE", "PUNSUBSCRIBE", "CLIENT REPLY ON", "PING " + mark} {
		probe = wire.Append(probe, strings.Fields(line)...)
	}
	looks := 0
	if testwait.Holds(func() bool {
		if looks%100 == 0 { // what comes with the loss can be lost
			c.Write(probe)
		}
		looks++
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.closed || strings.Contains(string(c.got), mark)
	}) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("silence: the client was told %.300q, is not closed, and not served", c.got)
}

// A client whose connection Redis has closed in the middle of a pipeline is closed too.
func TestClosedByTheUpstreamWithinAPipeline(t *testing.T) {
	server := testredis.Start(t)
	for _, mode := range []bool{false, true} {
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = mode })
		for _, then := range []string{"RESET", "CLIENT PAUSE 1 WRITE", "WAIT 0 10", "SELECT 1",
			"LOCK a 600", "PING"} {
			c := proxytest.Dial(t, p.Addr)
			c.Send("POST", then, "PING")
			c.SetReadDeadline(testwait.Deadline())
			got, err := io.ReadAll(c.In)
			if proxytest.IsTimeout(err) || len(got) > 0 &&
				!strings.HasPrefix(string(got), "-UPSTREAM ") ||
				strings.Contains(string(got), "PONG") {
				t.Errorf("dedicated %v, POST, %s: got %q, %v; Redis closes", mode, then, got, err)
			}
			c.Close()
		}
	}
}
