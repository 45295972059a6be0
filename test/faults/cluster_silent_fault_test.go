//go:build faults

package faults_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// A silent master (SIGSTOP) delays the requests that were in flight on the same connection as one
// for it, until a replica has replaced it; not later ones. The figures are printed with -v.
func TestClusterSilentNode(t *testing.T) {
	c := testredis.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
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
	stopped := make(chan struct{})
	var running sync.WaitGroup
	longest := make([]time.Duration, 8)
	for i := range longest {
		client := proxytest.Dial(t, p.Addr)
		running.Go(func() { // ends when stopped is closed
			for {
				select {
				case <-stopped:
					return
				default:
				}
				began := time.Now()
				client.Send("GET " + elsewhere)
				if got, err := client.TryReply(); err != nil || got != "$-1\r\n" {
					t.Errorf("GET at another node: %q, %v", got, err)
					return
				}
				longest[i] = max(longest[i], time.Since(began))
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	asking := proxytest.Dial(t, p.Addr)
	testwait.Until(t, "all share one connection", func() bool {
		asking.Expect("GET "+elsewhere, "$-1\r\n")
		return p.Server.Stats().Connections.Shared == len(longest)+1
	})
	silent.Pause()
	began := time.Now()
	asking.Send("GET " + there)
	time.Sleep(300 * time.Millisecond)
	late := proxytest.Dial(t, p.Addr)
	lateBegan := time.Now()
	late.Expect("GET "+elsewhere, "$-1\r\n")
	lateTook := time.Since(lateBegan)
	got, err := asking.TryReply()
	took := time.Since(began)
	close(stopped)
	running.Wait()
	silent.Resume()
	held := 0
	for _, l := range longest {
		if l > 500*time.Millisecond {
			held++
		}
	}
	t.Logf(
		"asked of the silent node: %q, %v after %v; %d of %d others were held, the longest wait "+
			"of each %v; later clients waited %v", got, err, took, held, len(longest), longest,
		lateTook)
	if lateTook > time.Second+proxytest.Late() {
		t.Errorf("later clients waited %v", lateTook)
	}
	for _, l := range longest {
		if l > took+500*time.Millisecond+proxytest.Late() {
			t.Errorf("another was held for %v, the client of the silent node for %v", l, took)
		}
	}
}
