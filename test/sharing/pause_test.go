package sharing_test

import (
	"fmt"
	"slices"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// While the upstream holds back a client's write, other clients' requests after it are not held
// back: clients don't share meanwhile.
func TestPausedWritesHoldUpNoOtherClient(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	const clients = 20
	var writers, readers []*proxytest.Conn
	pauser := proxytest.SharedClient(t, p.Addr)
	for range clients {
		writers, readers = append(writers, proxytest.Dial(t, p.Addr)),
			append(readers, proxytest.Dial(t, p.Addr))
	}
	testwait.Until(t, "all share", func() bool {
		for _, c := range slices.Concat(writers, readers) {
			c.Expect("PING", "+PONG\r\n")
		}
		return p.Server.Stats().Connections.Shared >= 2*clients
	})
	for round, pause := range [][]string{{"CLIENT PAUSE 600000 WRITE"},
		{"MULTI", "CLIENT PAUSE 600000 WRITE", "EXEC"}} {
		for _, command := range pause {
			pauser.Do(command)
		}
		for i, c := range writers {
			c.Send(fmt.Sprintf("SET k%d v", i))
		}
		for range 3 {
			for i, c := range readers {
				c.Send(fmt.Sprintf("GET other%d", i))
				if got := c.Reply(); got != "$-1\r\n" {
					t.Fatalf("round %d, reader %d: %q", round, i, got)
				}
			}
		}
		pauser.Expect("CLIENT UNPAUSE", "+OK\r\n")
		for i, c := range writers {
			if got := c.Reply(); got != "+OK\r\n" {
				t.Errorf("writer %d: %q", i, got)
			}
			c.Expect(fmt.Sprintf("GET k%d", i), "$1\r\nv\r\n")
		}
		// A client's home may first have to be asked where it leads.
		testwait.Until(t, "all readers share again", func() bool {
			for _, c := range readers {
				c.Expect("GET other", "$-1\r\n")
			}
			return p.Server.Stats().Connections.Shared >= clients
		})
	}
}

// A refused pause does not end sharing.
func TestRefusedPause(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER limited on >p ~* &* +@all -client|pause", "+OK\r\n")
	c, other := proxytest.Dial(t, p.Addr), proxytest.SharedClient(t, p.Addr)
	c.Expect("AUTH limited p", "+OK\r\n")
	proxytest.OpenLane(t, p.Addr, "AUTH limited p")
	for range 5 {
		c.Expect("CLIENT PAUSE 600000 WRITE", "-NOPERM…")
		c.Expect("CLIENT PAUSE x WRITE", "-NOPERM…")
		other.Expect("CLIENT PAUSE x WRITE", "-ERR…")
		testwait.Until(t, "both share", func() bool {
			c.Expect("SET a b", "+OK\r\n")
			other.Expect("SET a b", "+OK\r\n")
			return p.Server.Stats().Connections.Shared == 2
		})
	}
}
