package passthrough

import (
	"context"
	"io"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/test/testwait"
)

// A client's home serves others after it. Redis closes that of a client which has sent QUIT: nobody
// is given it, though the client is disconnected before the proxy knows of the close.
func TestQuitLeavesNoSpare(t *testing.T) {
	for name, test := range map[string]struct {
		effect commands.Effect
		spare  bool
	}{"PING": {commands.NoEffect, true}, "QUIT": {commands.Quit, false}} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, 1)
			c := s.client(t)
			home := c.openHome(t, s)
			s.lanes.Spares = 1
			if err := c.Route(context.Background(), Home, nil); err != nil {
				t.Fatal(err)
			}
			c.Relay(Request{Raw: []byte("*1\r\n$4\r\n" + name + "\r\n"),
				Expect: Expect{Effect: test.effect}}, nil)
			if c.Flush(nil); test.effect == commands.Quit {
				c.End(WhenAnswered)
			}
			io.WriteString(home, "+OK\r\n")
			if got := c.line(t); got != "+OK" {
				t.Fatal(got)
			}
			testwait.Until(t, "the client has been given it", func() bool {
				unread, _, _ := c.c.out.status()
				return !unread
			})
			c.c.mu.Lock()
			used := c.c.home
			c.c.mu.Unlock()
			c.End(ClientGone)
			c.c.mu.Lock()
			given := used.phase == left
			c.c.mu.Unlock()
			if given != test.spare {
				t.Errorf("others get the connection: %v", given)
			}
			home.Close()
			c.Wait()
		})
	}
}
