package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/testwait"
)

// A run sends something while it waits for the lock and while it holds it, whatever its timeout:
// balancers cut connections on which nothing moves.
func TestRunPings(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var pings atomic.Int64
	var relaying sync.WaitGroup
	relaying.Go(func() { // ends with the listener
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.addr)
			if err != nil {
				client.Close()
				continue
			}
			relaying.Go(func() { io.Copy(client, server); client.Close() })
			relaying.Go(func() {
				in := bufio.NewReader(client)
				for line, err := in.ReadString('\n'); err == nil; line, err = in.ReadString('\n') {
					if line == "PING\r\n" {
						pings.Add(1)
					}
					io.WriteString(server, line)
				}
				server.Close()
			})
		}
	})
	t.Cleanup(relaying.Wait) // when the run has ended
	t.Cleanup(func() { ln.Close() })
	ping := func(while string) {
		t.Helper()
		from := pings.Load()
		testwait.Until(t, "two pings while it "+while, func() bool { return pings.Load() >= from+2 })
	}

	token := s.do("LOCK", "job", "600")
	release := fifo(t, filepath.Join(t.TempDir(), "release"))
	run := s.run("--url", "redis://"+ln.Addr().String(), "--timeout", "600", "--wait", "0", "--",
		"sh", "-c", "read line <"+release)
	testwait.Until(t, "it waits", func() bool { return s.field("waiters") == "1" })
	ping("waits")
	s.do("UNLOCK", "job", token)
	testwait.Until(t, "it holds the lock", func() bool { return s.field("session") == "1" })
	ping("holds the lock")
	os.WriteFile(release, []byte("go on\n"), 0)
	run.wantStatus(0, "")
}
