package cluster

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// A Conn begins at another node when one is silent, long before its timeout.
func TestOpenNextToASilentNode(t *testing.T) {
	cl := New([]string{"silent:1", "good:1"})
	m := mapOf(2, func(slot int) int { return slot % 2 })
	m.masters = []string{"silent:1", "good:1"}
	cl.slots.Store(m)
	var silent atomic.Bool // was tried
	dial := func(ctx context.Context, addr string, _ [][]string) (net.Conn, error) {
		if addr == "silent:1" {
			silent.Store(true)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		here, there := net.Pipe()
		t.Cleanup(func() { there.Close() })
		return here, nil
	}
	for range 8 { // which node is tried first is left to chance
		c, err := cl.Open(t.Context(), Options{Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if silent.Load() {
			return
		}
	}
}

// A Conn does not begin at a replica, also if the map becomes known only while it is dialled.
func TestOpenWhileTheMapBecomesKnown(t *testing.T) {
	cl := New([]string{"replica:1"})
	m := mapOf(1, func(int) int { return 0 })
	m.masters, m.replicas = []string{"master:1"}, []string{"replica:1"}
	dial := func(context.Context, string, [][]string) (net.Conn, error) {
		cl.slots.Store(m)
		here, there := net.Pipe()
		t.Cleanup(func() { there.Close() })
		return here, nil
	}
	c, err := cl.Open(t.Context(), Options{Dial: dial})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr := c.nodes.defaultNode().addr; addr != "master:1" {
		t.Errorf("requests without keys go to %s", addr)
	}
}

// The first node is asked for the map on the connection that serves the client next: pushes are not
// taken for the answers, and replies behind these are not lost.
func TestOpenAmongPushes(t *testing.T) {
	const push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$11\r\nm:\r\n+FORGED\r\n"
	const info = "$25\r\ncluster_current_epoch:7\r\n\r\n"
	const slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$4\r\ngood\r\n:1\r\n"
	for at, says := range []string{push + info + slots, info + push + slots, info + slots + push,
		push + info + push + slots + push + push} {
		cl := New([]string{"good:1"})
		dial := func(ctx context.Context, addr string, _ [][]string) (net.Conn, error) {
			here, there := net.Pipe()
			done := make(chan struct{})
			go func() { // ends when the Conn does
				defer close(done)
				in := bufio.NewReader(there)
				readRequests(in, 2)
				there.Write([]byte(says))
				readRequests(in, 1)
				there.Write([]byte("+ours\r\n"))
			}()
			t.Cleanup(func() { there.Close(); <-done })
			return here, nil
		}
		c, err := cl.Open(t.Context(), Options{Dial: dial, Setup: [][]string{{"HELLO", "3"}}})
		if err != nil {
			t.Fatalf("%d: %v", at, err)
		}
		if m := cl.slots.Load(); m == nil || m.master(5) != "good:1" || cl.epoch != 7 {
			t.Errorf("%d: the map is %+v, epoch %d", at, m, cl.epoch)
		}
		c.SetDeadline(testwait.Deadline())
		c.Write(wire.Append(nil, "ECHO", "x"))
		raw, in := ">", bufio.NewReader(c)
		for raw[0] == '>' && err == nil {
			raw, err = wire.ReadReply(in, wire.RESP3)
		}
		if err != nil || raw != "+ours\r\n" {
			t.Errorf("%d: %q, %v", at, raw, err)
		}
		c.Close()
	}
}

// readRequests reads n requests, which are arrays.
func readRequests(in *bufio.Reader, n int) {
	for range n {
		if _, err := wire.ReadCommand(in); err != nil {
			return
		}
	}
}
