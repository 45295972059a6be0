package lockproxy_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// Who hasn't been let in doesn't count among those who compete for a lock without LOCK; who has does, also by his first request.
func TestStrangersDoNotCompete(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := dial(t, server.Addr())
	admin.expect("CONFIG SET requirepass secret", "+OK\r\n")
	for _, round := range []struct {
		key, login string
		handed     int64
	}{{"one", "", 1}, {"two", "AUTH secret\r\n", 0}} {
		holder, waiter, plain := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
		holder.expect("AUTH secret", "+OK\r\n")
		waiter.expect("AUTH secret", "+OK\r\n")
		token := holder.lock(round.key + " 30")
		waiter.send("LOCK " + round.key + " 30 WAIT 5")
		eventually(t, 2*time.Second, "it waits", func() bool { return p.server.Stats().Locks.Waiters == 1 })
		before := p.server.Stats().Locks.Handed
		plain.write(round.login + "SETNX " + round.key + " x\r\n")
		plain.reply()
		if round.login != "" {
			if got := plain.reply(); got != ":0\r\n" {
				t.Errorf("SETNX: %q", got)
			}
		}
		time.Sleep(20 * time.Millisecond)
		holder.expect(unlock(round.key, token), ":1\r\n")
		if got := waiter.reply(); got[0] != ':' {
			t.Fatalf("the waiter: %q", got)
		}
		if handed := int64(p.server.Stats().Locks.Handed - before); handed != round.handed {
			t.Errorf("%s: handed on %d times, want %d", round.key, handed, round.handed)
		}
	}
}

// A FENCE that was refused leaves the client's next transaction alone, also where its user may not UNWATCH.
func TestFenceWithoutUnwatch(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := dial(t, server.Addr())
	admin.expect("ACL SETUSER u on >p ~* &* +@all -unwatch", "+OK\r\n")
	c := dial(t, p.addr)
	c.expect("AUTH u p", "+OK\r\n")
	c.lock("job 30")
	c.expect("FENCE job 5 SET x y", "-FENCED…")
	admin.expect("DEL job", ":1\r\n")
	c.expect("MULTI", "+OK\r\n")
	c.expect("ECHO a", "+QUEUED\r\n")
	c.expect("EXEC", "*1\r\n$1\r\na\r\n")
}

// A command that the proxy doesn't know keeps its connection to itself within FENCE too, unless the upstream doesn't know it either.
func TestFenceWithUnknownCommand(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	c := trusted(t, p.addr)
	token := c.lock("job 30")
	c.expect(fmt.Sprintf("FENCE job %d NOSUCHCOMMAND", token), "-ERR unknown command…")
	c.expect("GET a", "$-1\r\n")
	if st := p.server.Stats().Connections; st.Shared != 1 {
		t.Errorf("%+v, want it to use a lane", st)
	}
	c.expect(fmt.Sprintf("FENCE job %d MODULE LIST", token), "*…") // Redis 8 has one built in
	for range 3 {
		c.expect("GET a", "$-1\r\n")
	}
	if st := p.server.Stats().Connections; st.Shared != 0 {
		t.Errorf("%+v, want it to stay at its home", st)
	}
}
