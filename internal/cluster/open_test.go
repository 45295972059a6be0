package cluster

import (
	"context"
	"net"
	"testing"
	"time"
)

// A Conn begins at another node when one says nothing, long before the time for it is over.
func TestOpenBesideASilentNode(t *testing.T) {
	cl := New([]string{"silent:1", "good:1"})
	m := mapOf(2, func(slot int) int { return slot % 2 })
	m.masters = []string{"silent:1", "good:1"}
	cl.slots.Store(m)
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		if addr == "silent:1" {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		here, there := net.Pipe()
		t.Cleanup(func() { there.Close() })
		return here, nil
	}
	for range 8 { // which node is tried first is left to chance
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		began := time.Now()
		c, err := cl.Open(ctx, Options{Dial: dial})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("it took %v", took)
		} else if took > doorPatience {
			return // the silent one was tried
		}
	}
}
