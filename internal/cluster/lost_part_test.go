package cluster_test

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"lockproxy/internal/cluster"
)

// stuckConn is a connection that sends nothing while stuck is true.
type stuckConn struct {
	net.Conn
	stuck  *atomic.Bool
	ended  chan struct{}
	writes chan struct{} // one for each that is stuck
}

func (s *stuckConn) Write(b []byte) (int, error) {
	if !s.stuck.Load() {
		return s.Conn.Write(b)
	}
	s.writes <- struct{}{}
	<-s.ended
	return 0, net.ErrClosed
}

// A request to all masters goes to no master twice if another is lost before it was sent its part.
func TestPartOfLostNodeGoesNowhereElse(t *testing.T) {
	t.Parallel()
	nodes := six(t)
	lost := nodes.Nodes[0].Addr()
	s := &stuckConn{stuck: new(atomic.Bool), ended: make(chan struct{}),
		writes: make(chan struct{}, 10)}
	dial := func(ctx context.Context, addr string, setup [][]string) (net.Conn, error) {
		nc, err := dialer(ctx, addr, setup)
		if err == nil && addr == lost && s.Conn == nil {
			s.Conn = nc
			return s, nil
		}
		return nc, err
	}
	cl := cluster.New([]string{nodes.Nodes[1].Addr()})
	nc, err := cl.Open(t.Context(), cluster.Options{Dial: dial, Timeout: dialTimeout,
		Early: true, Failure: failure})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	k := &client{t, nc, bufio.NewReader(nc)}
	key := keyAt(t, nodes, 0, "stuck")
	k.ask("GET " + key)
	s.stuck.Store(true)
	k.send("GET " + key)
	<-s.writes
	k.send("DBSIZE")
	s.Conn.Close()
	close(s.ended)
	k.reply()
	if got := k.reply(); got[0] != '-' {
		t.Errorf("DBSIZE: %q, without one master's", got)
	}
}
