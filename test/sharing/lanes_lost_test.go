package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// A request that is reported as never sent has not run, and an answered one has.
func TestLaneLossesAreTold(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.Start(t, "redis://"+link.Addr(), func(cfg *proxy.Config) {
		cfg.Dedicated = false
	})
	var unsent, unknown, whole int
	for round := 0; round < 6 || whole == 0 && round < 60; round++ {
		all := true
		var clients []*proxytest.Conn
		for range 4 {
			clients = append(clients, proxytest.SharedClient(t, p.Addr))
		}
		held := round%2 == 0
		if held {
			link.Hold()
		}
		before := p.Server.Stats().BytesIn
		for i, c := range clients {
			var raw []byte
			for j := range 200 {
				raw = wire.Append(raw, "SET", fmt.Sprintf("lost:%d:%d:%d", round, i, j),
					strings.Repeat("x", 5000))
			}
			go c.Write(raw) // ends when it is read, or the client is closed with the test
		}
		read, looks := before+rand.Uint64N(3<<20), 0 // of 4 MB
		testwait.Until(t, "some of it is read", func() bool {
			looks++
			return p.Server.Stats().BytesIn >= read ||
				// a client that leaves the silent lane is read no further before it is answered
				held && looks > 100 && link.Holding()
		})
		link.Cut()
		link.Release()
		admin := proxytest.Dial(t, server.Addr())
		for i, c := range clients {
			closed := false
			for j := range 200 {
				got, err := c.TryReply()
				if closed = err != nil; closed { // it looks like CLIENT KILL if the machine is slow
					all = false
					break
				}
				exists := func() bool {
					return admin.Do(fmt.Sprintf("EXISTS lost:%d:%d:%d", round, i, j)) == ":1\r\n"
				}
				switch {
				case got == "+OK\r\n":
					if !exists() {
						t.Errorf("round %d, client %d, %d: OK, but it didn't run", round, i, j)
					}
				case strings.Contains(got, "nothing was sent"):
					if unsent++; exists() {
						t.Errorf("round %d, client %d, %d: %q, but it ran", round, i, j, got)
					}
				case strings.Contains(got, "whether the command ran is unknown"):
					unknown++
				default:
					t.Fatalf("round %d, client %d, %d: %q", round, i, j, got)
				}
			}
			for got := ""; !closed && got != "$5\r\nafter\r\n"; {
				// A connection that was being made when the link was cut is lost as well, and so is
				// a home whose end the proxy has not seen yet. Either is reported.
				c.Send("ECHO after")
				var err error
				if got, err = c.TryReply(); err != nil {
					all = false
					break
				}
				if got != "$5\r\nafter\r\n" && !strings.HasPrefix(got, "-UPSTREAM ") {
					t.Fatalf("round %d, client %d: ECHO after: %q", round, i, got)
				}
			}
			c.Close()
		}
		if all {
			whole++
		}
	}
	t.Logf("%d not sent, %d unknown, %d rounds in which no client was closed", unsent, unknown, whole)
	if unknown == 0 || whole == 0 {
		t.Error("nothing was lost, or all clients were closed")
	}
}
