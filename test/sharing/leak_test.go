package sharing_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Hundreds of clients that come, move between lanes and
// homes, and vanish in between leave nothing behind.
func TestLanesLeaveNothingBehind(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 2)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("SET big "+strings.Repeat("x", 100<<10), "+OK\r\n")
	kinds := []struct {
		send  string
		lines []string // that are read before the client goes
	}{
		{"PING\r\nSET a b\r\nGET a\r\n", []string{"+PONG", "+OK", "$1"}},
		{"PING\r\nMULTI\r\nSET a b\r\n", []string{"+PONG", "+OK"}},
		{"PING\r\nBLPOP nothing 0\r\n", []string{"+PONG"}},
		{"PING\r\n" + strings.Repeat("GET big\r\n", 50), []string{"+PONG"}}, // goes without reading
		{"PING\r\nSELECT 2\r\nGET a\r\nCLIENT ID\r\n", []string{"+PONG", "+OK", "$-1", ":"}},
		{"HELLO 3\r\nSUBSCRIBE c\r\nGET a\r\n", []string{"%7"}},
		{"PING\r\nEVAL \"return 1\" 0\r\nMULTI\r\nEXEC\r\nGET a\r\n",
			[]string{"+PONG", ":1", "+OK", "*0"}},
		{"PING\r\nCLIENT REPLY SKIP\r\nGET a\r\nWAIT 0 0\r\nPING\r\n", []string{"+PONG", ":0"}},
		{"PING\r\nSET a b\r\nRESET\r\nQUIT\r\n", []string{"+PONG", "+OK", "+RESET", "+OK"}},
	}
	come := func(clients int) {
		var running sync.WaitGroup
		places := make(chan struct{}, 60)
		for i := range clients {
			places <- struct{}{}
			running.Go(func() {
				defer func() { <-places }()
				nc, err := proxytest.TryDial(p.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer nc.Close()
				nc.SetDeadline(testwait.Deadline())
				if tcp, ok := nc.(*net.TCPConn); ok && i%5 == 0 {
					tcp.SetLinger(0)
				}
				kind := kinds[i%len(kinds)]
				fmt.Fprint(nc, kind.send)
				in := bufio.NewReader(nc)
				for _, want := range kind.lines {
					if line, err := in.ReadString('\n'); !strings.HasPrefix(line, want) {
						t.Errorf("%q: got %q, %v, want %q", kind.send[:min(60, len(kind.send))],
							line, err, want)
						return
					}
					if want == "%7" {
						break
					}
				}
			})
		}
		running.Wait()
	}
	come(90)
	atRest := func() (goroutines, files int) {
		testwait.Until(t, "all clients are gone", func() bool {
			st := p.Server.Stats()
			return st.Clients == 0 && st.Connections.Shared == 0 && st.Connections.Homes == 0
		})
		return runtime.NumGoroutine(), proxytest.OpenFiles(t)
	}
	goroutines, files := atRest()
	come(450) // 50 of each kind: more than the goroutines and files that are allowed for below
	// There can be more idle lanes than before, each with two goroutines and a file.
	const lanes = 8
	testwait.Until(t, "goroutines and files are as before", func() bool {
		g, f := atRest()
		return g <= goroutines+2*lanes && f <= files+lanes
	})
	if t.Failed() {
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	testwait.Until(t, "the upstream has noticed", func() bool {
		left := p.Server.Stats().Connections
		return left.Lanes <= lanes && laneClients(admin) == left.Lanes+left.Spares
	})
}
