package passthrough

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// Behind a RESET the home is logged in again as a new one. If it was idle meanwhile, or lost, no
// request waits for a login that was never sent.
func TestHomeThatEndsBetweenResetAndLogin(t *testing.T) {
	for name, ends := range map[string]func(*scriptedClient, net.Conn){
		"idle": func(c *scriptedClient, _ net.Conn) { c.homes.closeIdle(); c.homes.closeIdle() },
		"lost": func(c *scriptedClient, redis net.Conn) { redis.Close(); <-c.homes.lastHome.ended },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, 0)
			s.lanes.HomeIdle = time.Hour
			c := s.client(t)
			if err := c.Route(context.Background(), Home, nil); err != nil {
				t.Fatal(err)
			}
			reset := wire.Append(nil, "RESET")
			c.Relay(Request{Raw: reset, Expect: Expect{Effect: commands.Reset}}, nil)
			answered := c.Barrier()
			c.Flush(nil)
			redis := <-s.conns
			io.ReadFull(redis, make([]byte, len(reset)))
			io.WriteString(redis, "+RESET\r\n")
			testwait.For(t, "RESET is answered", answered.Done)
			ends(c, redis)
			c.Flush(nil)
			io.WriteString(redis, "-ERR unknown\r\n") // to HELLO
			testwait.For(t, "nothing is missing", c.Barrier().Done)
			if err := c.Route(context.Background(), Home, nil); err != nil {
				t.Errorf("no way for the next request: %v", err)
			}
		})
	}
}
