package passthrough

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/internal/upstream"
)

// newJudge returns a Pool with a judge by which no other connection can be opened, and the upstream's
// end of the judge.
func newJudge(t *testing.T) (s *scripted, judge net.Conn) {
	t.Helper()
	s = newScripted(t, 1)
	s.lanes.Upstream.Addr = "127.0.0.1:1" // nobody answers there
	near, far := tcpPair(t)
	far.SetReadDeadline(testwait.Deadline())
	s.lanes.addJudge(spare{Conn: near, heardAt: monotonic.Now()})
	return s, far
}

// logsIn has a new client send the login of user i, of which lanes are open. heard is false if that
// would take a home.
func (s *scripted) logsIn(t *testing.T, i int) (c *scriptedClient, heard bool) {
	t.Helper()
	c = s.client(t)
	c.c.pending.Admitted = false
	t.Cleanup(func() {
		c.End(AtOnce)
		c.Wait()
	})
	id := upstream.Identity{User: userOf(i), Password: "pw", LoggedIn: true}
	s.lanes.mu.Lock()
	s.lanes.logins[id] = 1
	s.lanes.mu.Unlock()
	return c, c.Send(t.Context(), Request{
		Raw: wire.Append(nil, "AUTH", id.User, id.Password), Way: Login,
		Expect: Expect{Effect: commands.Auth, Change: &id}}, nil) == nil
}

func userOf(i int) string { return fmt.Sprint("user", i) }

// isFree returns once the only judge hears nobody.
func (s *scripted) isFree(t *testing.T) {
	t.Helper()
	testwait.Until(t, "the judge hears nobody", func() bool {
		s.lanes.judges.mu.Lock()
		defer s.lanes.judges.mu.Unlock()
		return len(s.lanes.judges.all) == 1 && s.lanes.judges.all[0].phase == free
	})
}

// runsAs fails unless a client is taken to be logged in as user; "" is not at all.
func runsAs(t *testing.T, c *scriptedClient, user string) {
	t.Helper()
	if state, settled := c.State(); !settled || state.User != user || state.Admitted != (user != "") {
		t.Errorf("it runs as %q, admitted %v, settled %v, want %q", state.User, state.Admitted,
			settled, user)
	}
}

// A judge hears one client at a time: neither the next login nor anything else is sent before the
// verdict and the end of the RESET behind it have come. Each client gets its own verdict.
func TestJudgeHearsOneClientAtATime(t *testing.T) {
	s, judge := newJudge(t)
	var clients []*scriptedClient
	verdicts := []string{"+OK", "-WRONGPASS no", "+OK", "-WRONGPASS not either"}
	for i := range verdicts {
		c, heard := s.logsIn(t, i)
		if !heard {
			t.Fatalf("client %d is not heard", i)
		}
		clients = append(clients, c)
	}
	for i, verdict := range verdicts {
		c, user := clients[i], map[bool]string{true: userOf(i)}[verdict == "+OK"]
		reads(t, judge, "AUTH", userOf(i), "pw")
		io.WriteString(judge, verdict+"\r\n")
		reads(t, judge, "RESET")
		if got := c.line(t); got != verdict {
			t.Errorf("client %d: %q", i, got)
		}
		io.WriteString(judge, "+RESET\r\n")
		runsAs(t, c, user)
		if writes := c.Status().Writes; writes != AtHome {
			t.Errorf("client %d has written nothing, but Writes is %d", i, writes)
		}
	}
	s.isFree(t)
}

// A client that leaves while it is judged takes no other's verdict with it.
func TestClientLeavesItsJudge(t *testing.T) {
	s, judge := newJudge(t)
	c, _ := s.logsIn(t, 0)
	reads(t, judge, "AUTH", userOf(0), "pw")
	c.End(AtOnce)
	c.Wait()
	io.WriteString(judge, "+O")
	io.WriteString(judge, "K\r\n")
	reads(t, judge, "RESET")
	io.WriteString(judge, "+RESET\r\n")
	c, _ = s.logsIn(t, 1)
	reads(t, judge, "AUTH", userOf(1), "pw")
	io.WriteString(judge, "-WRONGPASS no\r\n")
	if got := c.line(t); got != "-WRONGPASS no" {
		t.Error(got)
	}
	runsAs(t, c, "")
}

// A login without a whole verdict logs nobody in. A judge that says more than it was asked is not
// used any more.
func TestJudgeIsLost(t *testing.T) {
	for _, test := range []struct{ says, told, user string }{
		{"", "-SENT\r\n", ""}, {"+O", "+O", ""}, {"-WRONG", "-WRONG", ""},
		{"+OK\r\n+OK\r\n", "+OK\r\n", userOf(0)}, {"+OK\r\n-ERR no\r\n", "+OK\r\n", userOf(0)},
		{"-ERR no\r\n+OK\r\n", "-ERR no\r\n", ""},
	} {
		s, judge := newJudge(t)
		c, _ := s.logsIn(t, 0)
		next, _ := s.logsIn(t, 1)
		reads(t, judge, "AUTH", userOf(0), "pw")
		io.WriteString(judge, test.says)
		told, early := make([]byte, len(test.told)), 0
		if !strings.HasSuffix(test.says, "\n") { // the connection ends before the verdict does
			early = len(test.says)
			io.ReadFull(c.in, told[:early])
			judge.Close()
		}
		if io.ReadFull(c.in, told[early:]); string(told) != test.told {
			t.Errorf("%q: the client is told %q", test.says, told)
		}
		if got := next.line(t); got != "-UNSENT" {
			t.Errorf("%q: the next client is told %q", test.says, got)
		}
		runsAs(t, c, test.user)
		runsAs(t, next, "")
	}
}

// Nothing that a judge says before a login was sent is taken for its verdict.
func TestJudgeSaysTooMuch(t *testing.T) {
	s, judge := newJudge(t)
	s.logsIn(t, 0)
	next, _ := s.logsIn(t, 1)
	reads(t, judge, "AUTH", userOf(0), "pw")
	io.WriteString(judge, "+OK\r\n")
	reads(t, judge, "RESET")
	io.WriteString(judge, "+RESET\r\n+OK\r\n")
	if got := next.line(t); got != "-UNSENT" {
		t.Error(got)
	}
	runsAs(t, next, "")
}

// A login takes a home while judges are silent: their connections can have been cut, and nobody was
// told. Clients that wait are heard by the next judge.
func TestSilentJudges(t *testing.T) {
	s, silent := newJudge(t)
	s.logsIn(t, 0)
	reads(t, silent, "AUTH", userOf(0), "pw")
	waits, _ := s.logsIn(t, 1)
	s.lanes.judges.mu.Lock()
	s.lanes.judges.heardAt -= int64(maxHearing)
	s.lanes.judges.mu.Unlock()
	if _, heard := s.logsIn(t, 2); heard {
		t.Error("it waits for a silent judge")
	}
	near, judge := tcpPair(t)
	s.lanes.addJudge(spare{Conn: near, heardAt: monotonic.Now()})
	reads(t, judge, "AUTH", userOf(1), "pw")
	io.WriteString(judge, "+OK\r\n")
	if got := waits.line(t); got != "+OK" {
		t.Error(got)
	}
	runsAs(t, waits, userOf(1))
}

// A judge is closed, and hears nobody, once new connections lead to another server.
func TestJudgeOfAnotherServer(t *testing.T) {
	for _, isFree := range []bool{true, false} {
		s, judge := newJudge(t)
		var waits *scriptedClient
		if !isFree {
			s.logsIn(t, 0)
			waits, _ = s.logsIn(t, 1)
			reads(t, judge, "AUTH", userOf(0), "pw")
		}
		s.lanes.found(upstream.Server{Addr: "elsewhere", RunID: "x"})
		if isFree {
			if _, heard := s.logsIn(t, 2); heard {
				t.Error("it is heard by a judge of the former server")
			}
		} else {
			io.WriteString(judge, "+OK\r\n")
			reads(t, judge, "RESET")
			io.WriteString(judge, "+RESET\r\n")
			if got := waits.line(t); got != "-UNSENT" {
				t.Error(got)
			}
		}
		if got, err := bufio.NewReader(judge).ReadByte(); err != io.EOF {
			t.Errorf("the judge is sent %q, %v", got, err)
		}
	}
}
