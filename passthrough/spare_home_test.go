package passthrough

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/test/testwait"
)

// A client that goes by a lane does not notice that its home, which nothing has used for a while,
// is cut. It gets another when it needs one. A client that has logged in itself goes on only if
// its lane does: otherwise Redis has ended what this user had.
func TestUnneededHomeIsCut(t *testing.T) {
	for _, test := range []struct {
		name              string
		own, idle, laneTo bool
		closed            bool
	}{
		{"idle", false, true, false, false},
		{"own login, idle", true, true, false, false},
		{"own login, with its lane", true, true, true, true},
		{"own login, in use", true, false, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScripted(t, 1)
			c := s.client(t)
			home := c.openHome(t, s)
			c.ask(t, "PING")
			c.Flush(nil)
			lane := testwait.For(t, "the lane is open", s.conns)
			io.WriteString(lane, "+PONG\r\n")
			if got := c.line(t); got != "+PONG" {
				t.Fatal(got)
			}
			c.c.mu.Lock()
			if test.own {
				c.c.pending.LoggedIn, c.c.pending.User = true, "ann"
			}
			c.c.home.heardAt = monotonic.Now() + int64(time.Hour) // in use, for as long as the test lasts
			if test.idle {
				c.c.home.heardAt = monotonic.Now() - int64(2*time.Second)
			}
			ended := c.c.home.ended
			c.c.mu.Unlock()
			if test.laneTo {
				lane.Close()
				<-c.lanes.lane.ended
			}
			home.Close()
			testwait.For(t, "the home has ended", ended)
			if lost := c.Lost(); lost != test.closed {
				t.Fatalf("the client is closed: %v", lost)
			}
			if !test.closed {
				c.c.mu.Lock()
				c.c.pending.User, c.c.pending.LoggedIn = "", false // the script knows no AUTH
				c.c.mu.Unlock()
				c.ask(t, "PING")
				c.Flush(nil)
				io.WriteString(lane, "+AGAIN\r\n")
				if got := c.line(t); got != "+AGAIN" {
					t.Error(got)
				}
				c.openHome(t, s)
			}
			c.End(AtOnce)
			c.Wait()
		})
	}
}

// openHome has the client use its home, and returns the upstream's end of it.
func (c *scriptedClient) openHome(t *testing.T, s *scripted) net.Conn {
	t.Helper()
	if err := c.Route(context.Background(), Home, nil); err != nil {
		t.Fatal(err)
	}
	answer := c.Do(nil, []byte(probing), []byte(asking[0]), []byte(asking[1]))[0] // the script answers
	c.Flush(nil)
	if v, err := answer.Value(); err != nil || string(v.Text) != "PONG" {
		t.Fatalf("%v, %v", v, err)
	}
	return testwait.For(t, "the home is open", s.conns)
}

// Where Redis closes idle clients, one whose home it has closed after that time is closed too,
// though Redis does not say in time that it is there.
func TestIdleHomeIsClosed(t *testing.T) {
	for _, test := range []struct {
		name    string
		timeout time.Duration // Redis's
		closed  bool
	}{{"its timeout", 2 * time.Second, true}, {"a longer one", time.Hour, false}, {"none", 0, false}} {
		t.Run(test.name, func(t *testing.T) {
			s := newScripted(t, 1)
			s.lanes.Suspend(true, test.timeout)
			c := s.client(t)
			home := c.openHome(t, s)
			s.lanes.Upstream.Addr = "127.0.0.1:1" // nobody answers there
			c.c.mu.Lock()
			c.c.home.heardAt = monotonic.Now() - int64(2*time.Second)
			ended := c.c.home.ended
			c.c.mu.Unlock()
			home.Close()
			testwait.For(t, "the home has ended", ended)
			if lost := c.Lost(); lost != test.closed {
				t.Errorf("the client is closed: %v", lost)
			}
			c.End(AtOnce)
			c.Wait()
		})
	}
}
