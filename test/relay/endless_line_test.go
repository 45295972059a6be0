//go:build memory

package relay_test

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// On one of the proxy's own connections, an endless line of the upstream ends the connection and
// takes no memory. Status and error replies of scripts to clients are lines of any length.
func TestEndlessLineOfTheUpstream(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	endless := bytes.Repeat([]byte("x"), 64<<10)
	serving.Go(func() { // ends when the listener is closed
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { // ends when the proxy closes, or after 512 MB
				defer nc.Close()
				nc.Read(make([]byte, 4096)) // a request
				nc.Write([]byte("+"))
				for range 8192 {
					if _, err := nc.Write(endless); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { ln.Close() })
	server, usual := proxytest.StartBoth(t)
	long := `return redis.status_reply(string.rep("x", 3000000))`
	got, err := proxytest.GoRedis(t, usual.Addr).Eval(proxytest.Ctx, long, nil).Text()
	if len(got) != 3000000 {
		t.Errorf("a long status: %d bytes, %v; from %s", len(got), err, server.Addr())
	}
	p := proxytest.Start(t, "redis://"+ln.Addr().String(), nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = p.Server.Ready(proxytest.Ctx)
	if err == nil || !strings.Contains(err.Error(), "than 1048576 bytes") {
		t.Errorf("ready: %v", err)
	}
	runtime.ReadMemStats(&after)
	if used := int64(after.TotalAlloc - before.TotalAlloc); used > 64<<20 {
		t.Errorf("%d MB were allocated", used>>20)
	}
	c := proxytest.Dial(t, p.Addr)
	c.Send("LOCK job 600")
	// The reply can have 64 MB, since FENCE relays a reply of the client's script.
	if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
		t.Errorf("LOCK: %q", got)
	}
}
