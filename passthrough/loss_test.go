package passthrough

import (
	"context"
	"net"
	"testing"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/socket"
)

// lateConn is on a machine that stops for two seconds behind each deadline that is set.
type lateConn struct{ *net.TCPConn }

func (c lateConn) SetWriteDeadline(t time.Time) error {
	return c.TCPConn.SetWriteDeadline(t.Add(-2 * time.Second))
}

// A client is told that its connection is lost, also if the machine stops at that moment.
func TestLossIsToldOnASlowMachine(t *testing.T) {
	s := newScripted(t, 0)
	near, far := tcpPair(t)
	p := NewPipe(s.lanes, lateConn{near}, socket.New(near),
		func(error) []byte { return []byte("-LOST\r\n") })
	c := &scriptedClient{p, far, nil}
	if err := c.Route(context.Background(), Home, nil); err != nil {
		t.Fatal(err)
	}
	c.Relay(Request{Raw: []byte("MULTI\r\n"), Expect: Expect{Effect: commands.Multi}}, nil)
	c.Flush(nil)
	home := <-s.conns
	if got := lineOf(t, home); got != "MULTI" {
		t.Fatalf("the upstream is sent %q", got)
	}
	home.Close()
	if got := lineOf(t, far); got != "-LOST" {
		t.Errorf("told %q", got)
	}
	c.End(AtOnce)
	c.Wait()
}
