package passthrough

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/test/wire"
	"lockproxy/internal/upstream"
)

// judged returns three clients that have sent a login each, of which lanes are open, and the upstream's
// end of the only judge.
func judged(t *testing.T) (clients []*scriptedClient, judge net.Conn) {
	t.Helper()
	s := newScripted(t, 1)
	s.lanes.Upstream.Addr = "127.0.0.1:1" // nobody answers there
	near, far := tcpPair(t)
	s.lanes.judges.mu.Lock()
	s.lanes.addJudgeLocked(spare{Conn: near, heardAt: monotonic.Now()})
	s.lanes.judges.mu.Unlock()
	for i := range 3 {
		c := s.client(t)
		t.Cleanup(func() {
			c.End(AtOnce)
			c.Wait()
		})
		if err := c.logsIn(i); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	return clients, far
}

// logsIn has the client send the login of user i, of which lanes are open.
func (c *scriptedClient) logsIn(i int) error {
	id := upstream.Identity{User: userOf(i), Password: "pw", LoggedIn: true}
	c.c.pool.mu.Lock()
	c.c.pool.logins[loginOf(id)] = 1
	c.c.pool.mu.Unlock()
	return c.Send(context.Background(), Request{Raw: wire.Append(nil, "AUTH", id.User, id.Password),
		Way: Login, Expect: Expect{Effect: commands.Auth, Change: &id}}, nil)
}

func userOf(i int) string { return fmt.Sprint("user", i) }

// runsAs fails unless a client is taken to be logged in as user; "" is not at all.
func runsAs(t *testing.T, c *scriptedClient, user string) {
	t.Helper()
	if state, settled := c.State(); !settled || state.User != user {
		t.Errorf("it runs as %q, settled %v, want %q", state.User, settled, user)
	}
}

// A judge hears one client at a time: neither the next login nor anything else is sent before the
// verdict and the end of the RESET behind it have come.
func TestJudgeHearsOneClientAtATime(t *testing.T) {
	clients, judge := judged(t)
	for i, verdict := range []string{"+OK", "-WRONGPASS no", "+OK"} {
		reads(t, judge, "AUTH", userOf(i), "pw")
		io.WriteString(judge, verdict+"\r\n")
		reads(t, judge, "RESET")
		if got := clients[i].line(t); got != verdict {
			t.Errorf("client %d: %q", i, got)
		}
		io.WriteString(judge, "+RESET\r\n")
		if writes := clients[i].Status().Writes; writes != AtHome {
			t.Errorf("client %d has written nothing, but Writes is %d", i, writes)
		}
	}
	runsAs(t, clients[0], userOf(0))
	runsAs(t, clients[1], "")
	runsAs(t, clients[2], userOf(2))
}

// Logins without a verdict are answered as lost, and log nobody in, when the judge is lost, or says
// more than it was asked.
func TestJudgeIsLost(t *testing.T) {
	for _, test := range []struct{ says, first string }{
		{"", "-SENT"}, {"+OK\r\n+OK\r\n", "+OK"}, {"+OK\r\n-ERR no\r\n", "+OK"},
	} {
		clients, judge := judged(t)
		reads(t, judge, "AUTH", userOf(0), "pw")
		io.WriteString(judge, test.says)
		if test.says == "" {
			judge.Close()
		}
		for i, want := range []string{test.first, "-UNSENT", "-UNSENT"} {
			if got := clients[i].line(t); got != want {
				t.Errorf("%q: client %d is told %q, want %q", test.says, i, got, want)
			}
		}
		if test.first != "+OK" {
			runsAs(t, clients[0], "")
		}
		runsAs(t, clients[1], "")
		runsAs(t, clients[2], "")
	}
}

// A login takes a home while clients wait for judges that are silent: the connections of these can
// have been cut, and nobody was told.
func TestSilentJudges(t *testing.T) {
	clients, judge := judged(t)
	reads(t, judge, "AUTH", userOf(0), "pw")
	judges := &clients[0].c.pool.judges
	judges.mu.Lock()
	judges.heardAt -= int64(maxHearing)
	judges.mu.Unlock()
	s := scripted{lanes: clients[0].c.pool}
	late := s.client(t)
	if err := late.logsIn(3); err == nil {
		t.Error("it waits for a judge, though it can have no home here")
	}
	late.End(AtOnce)
	late.Wait()
}
