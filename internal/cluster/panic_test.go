package cluster

import (
	"context"
	"net"
	"testing"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/panics"
	"lockproxy/internal/resp"
)

// A panic in what a node says ends the Conn, which says so, and no other Conn: whether a goroutine
// reads the node or an event loop.
func TestPanicEndsTheConn(t *testing.T) {
	for _, inLoop := range []bool{false, true} {
		p, other := newPuppets(t, "a:1"), newPuppets(t, "a:1")
		if inLoop {
			loops, err := eventloop.Start(1)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(loops.Stop)
			p.conn.Loops, p.conn.Dial = loops, p.dialTCP
		}
		n := p.opens("a:1")
		p.send("GET k")
		n.hears("GET k")
		p.conn.mu.Lock()
		var none map[string]bool
		asked := p.conn.nodes.byAddr["a:1"].waiting.All()[0].req
		asked.onAnswer = func(*node, resp.Head) { none["k"] = true }
		p.conn.mu.Unlock()
		n.says("$-1")
		for range 2 {
			if _, err := p.in.ReadByte(); panics.In(err) == nil {
				t.Errorf("the Conn ends with %v", err)
			}
		}
		if _, err := p.conn.Write([]byte("PING\r\n")); panics.In(err) == nil {
			t.Errorf("it can be written to: %v", err)
		}
		other.opens("a:1")
	}
}

// dialTCP is dial for what an event loop can read.
func (p *puppets) dialTCP(_ context.Context, addr string, _ [][]string) (net.Conn, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	here, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	there, err := ln.Accept()
	p.calls[addr] <- there
	return here, err
}
