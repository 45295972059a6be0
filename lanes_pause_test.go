package lockproxy_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// What stands behind another client's write that the upstream holds back isn't held back: clients don't share meanwhile.
func TestPausedWritesHoldUpNobodyElse(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	const clients = 20
	var writers, readers []*rawConn
	for range clients {
		writers, readers = append(writers, trusted(t, p.addr)), append(readers, trusted(t, p.addr))
	}
	pauser := trusted(t, p.addr)
	for round, pause := range [][]string{{"CLIENT PAUSE 60000 WRITE"}, {"MULTI", "CLIENT PAUSE 60000 WRITE", "EXEC"}} {
		if round == 1 {
			// Within a transaction it isn't seen before it is done: what is asked at that very moment may be held back.
			time.Sleep(20 * time.Millisecond)
		}
		for _, command := range pause {
			pauser.do(command)
		}
		time.Sleep(20 * time.Millisecond)
		for i, c := range writers {
			c.send(fmt.Sprintf("SET k%d v", i))
		}
		for range 3 {
			for i, c := range readers {
				start := time.Now()
				c.send(fmt.Sprintf("GET other%d", i))
				if got := c.reply(); got != "$-1\r\n" || time.Since(start) > time.Second {
					t.Fatalf("round %d, reader %d: %q after %v", round, i, got, time.Since(start))
				}
			}
		}
		pauser.expect("CLIENT UNPAUSE", "+OK\r\n")
		for i, c := range writers {
			if got := c.reply(); got != "+OK\r\n" {
				t.Errorf("writer %d: %q", i, got)
			}
			c.expect(fmt.Sprintf("GET k%d", i), "$1\r\nv\r\n")
		}
		for _, c := range readers {
			c.expect("GET other", "$-1\r\n")
		}
		if st := p.server.Stats().Connections; st.Shared < clients {
			t.Errorf("%+v: want all readers to share again", st)
		}
	}
}

// A pause that is refused keeps nobody from sharing.
func TestRefusedPause(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := dial(t, server.Addr())
	admin.expect("ACL SETUSER limited on >p ~* &* +@all -client|pause", "+OK\r\n")
	c, other := dial(t, p.addr), trusted(t, p.addr)
	c.expect("AUTH limited p", "+OK\r\n")
	openLane(t, p.addr, "AUTH limited p")
	for range 5 {
		c.expect("CLIENT PAUSE 60000 WRITE", "-NOPERM…")
		c.expect("CLIENT PAUSE x WRITE", "-NOPERM…")
		other.expect("CLIENT PAUSE x WRITE", "-ERR…")
		eventually(t, 2*time.Second, "both share", func() bool {
			c.expect("SET a b", "+OK\r\n")
			other.expect("SET a b", "+OK\r\n")
			return p.server.Stats().Connections.Shared == 2
		})
	}
}
