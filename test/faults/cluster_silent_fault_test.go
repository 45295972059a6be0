//go:build faults

package faults_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// A silent master (SIGSTOP), which no replica replaces, delays only what was in flight on the same
// connection as a request for it, until this is noticed. Later clients are answered by the other masters. Once it goes
// on, all are.
func TestClusterSilentNode(t *testing.T) {
	c := testredis.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	p := proxytest.Start(t, c.URL(), nil)
	silent := c.Nodes[0]
	at := func(node *testredis.Server) string {
		for i := 0; ; i++ {
			if key := fmt.Sprint("silent", i); c.MasterOf(c.Slot(key)) == node {
				return key
			}
		}
	}
	there, elsewhere := at(silent), at(c.Nodes[1])
	clients := make([]*proxytest.Conn, 8)
	for i := range clients {
		clients[i] = proxytest.Dial(t, p.Addr)
	}
	testwait.Until(t, "all share one connection", func() bool {
		for _, client := range clients {
			client.Expect("GET "+elsewhere, "$-1\r\n")
		}
		return p.Server.Stats().Connections.Shared == len(clients)
	})
	silent.Pause()
	asking := clients[0]
	asking.Send("GET " + there)
	var early sync.WaitGroup
	var answered atomic.Bool
	testwait.Until(t, "a later client does not share the connection", func() bool {
		client := proxytest.Dial(t, p.Addr)
		early.Go(func() { // ends when the silent node goes on
			for range 2 { // the first by the client's own connection
				client.Send("GET " + elsewhere)
				if got, err := client.TryReply(); err != nil || got != "$-1\r\n" {
					t.Errorf("GET at another node: %q, %v", got, err)
				}
			}
			answered.Store(true)
		})
		return answered.Load()
	})
	for range 3 {
		late := proxytest.Dial(t, p.Addr)
		for range 100 {
			late.Expect("GET "+elsewhere, "$-1\r\n")
		}
	}
	for _, client := range clients[1:] {
		client.Send("GET " + elsewhere)
	}
	silent.Resume()
	for _, client := range clients {
		client.WantReply("$-1\r\n")
	}
	early.Wait()
}
