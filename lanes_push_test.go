package lockproxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// Pushes on connections that did not ask for any: any user has Redis send them with CLIENT TRACKING REDIRECT, with key names of its choice.

// forgery is such a push. A reader that begins within its key reads replies of the attacker's.
var forgery = func() string {
	key := "m:" + strings.Repeat("+++\r\n+FORGED\r\n:666\r\n", 40)
	return fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key)
}()

// answer reads one reply and skips pushes.
func (c *rawConn) answer() string {
	c.t.Helper()
	for {
		if got := c.reply(); got[0] != '>' {
			return got
		}
	}
}

// asked sends one command and fails unless its reply, behind whatever pushes, begins with want.
func (c *rawConn) asked(command, want string) {
	c.t.Helper()
	c.send(command)
	if got := c.answer(); !strings.HasPrefix(got, want) {
		c.t.Fatalf("%s: got %.200q, want %q", command, got, want)
	}
}

// echoed has three ways to the upstream answered: the client's own connection, a shared one, and a lock's.
func (c *rawConn) echoed(marker string) {
	c.t.Helper()
	echo := func(n int) {
		text := fmt.Sprintf("%s-%d", marker, n)
		c.asked("ECHO "+text, fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
	}
	echo(1)
	echo(2)
	c.asked("MULTI", "+OK\r\n")
	c.asked("ECHO in", "+QUEUED\r\n")
	c.asked("EXEC", "*1\r\n$2\r\nin\r\n")
	echo(3)
	c.asked("WATCH k", "+OK\r\n")
	echo(4)
	c.asked("UNWATCH", "+OK\r\n")
	echo(5)
	c.asked("LOCK "+marker+" 10", ":")
	c.asked("UNLOCK "+marker, ":1\r\n")
	c.asked("CLIENT SETNAME "+marker, "+OK\r\n")
	echo(6)
}

// What the proxy asks when it sets a connection up is answered by the replies to that, whatever is pushed before, between and behind them.
func TestPushesWhileConnectionsAreSetUp(t *testing.T) {
	const whole, split = "in one write", "in two writes"
	for _, login := range []string{"", "HELLO 3", "AUTH alice a", "HELLO 3 AUTH alice a"} {
		for _, begin := range []struct{ initial, database string }{{"", ""}, {":secret@", "SELECT 2"}} {
			t.Run(login+"/"+begin.initial, func(t *testing.T) {
				t.Parallel()
				server := testredis.Start(t)
				admin := dial(t, server.Addr())
				if begin.initial != "" {
					admin.expect("CONFIG SET requirepass secret", "+OK\r\n")
				}
				for _, pieces := range []string{whole, split} {
					for at := -1; at < 6; at++ { // -1 is everywhere
						admin.expect("ACL SETUSER alice on resetpass >a ~* &* +@all", "+OK\r\n")
						link := testredis.StartLink(t, server.Addr())
						link.Insert(func(replies int) (now, later string) {
							switch {
							case at >= 0 && replies != at:
								return "", ""
							case pieces == whole:
								return forgery, ""
							}
							return forgery[:len(forgery)/2], forgery[len(forgery)/2:]
						})
						p := startProxy(t, "redis://"+begin.initial+link.Addr(), func(cfg *proxy.Config) {
							cfg.Dedicated, cfg.UpstreamConns = dedicated, 1
						})
						pushedTo(t, p, admin, login, begin.database)
						if t.Failed() {
							t.Fatalf("with a push behind reply %d, %s", at, pieces)
						}
						p.server.Close()
					}
				}
			})
		}
	}
}

// pushedTo has two clients served after the same login, and once more after its password has been changed.
func pushedTo(t *testing.T, p *testProxy, admin *rawConn, login, database string) {
	var clients []*rawConn
	for range 2 {
		c := dial(t, p.addr)
		for _, command := range []string{login, database} {
			if command == "" {
				continue
			}
			c.send(command)
			if got := c.answer(); got[0] == '-' {
				t.Fatalf("%s: %q", command, got)
			}
		}
		clients = append(clients, c)
	}
	for i, c := range clients {
		c.echoed(fmt.Sprintf("first%d", i))
	}
	if !strings.Contains(login, "alice") {
		return
	}
	admin.expect("ACL SETUSER alice resetpass >b", "+OK\r\n")
	for i, c := range clients {
		c.echoed(fmt.Sprintf("second%d", i))
		c.asked("SELECT 5", "+OK\r\n")
		c.echoed(fmt.Sprintf("third%d", i))
	}
}

// A home and a lane are as good as before when they have got pushes that nobody asked for.
func TestPushesToIdleConnections(t *testing.T) {
	server := testredis.Start(t)
	admin, attacker := dial(t, server.Addr()), dial(t, server.Addr())
	admin.expect("ACL SETUSER alice on >a ~* &* +@all", "+OK\r\n")
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated, cfg.UpstreamConns = false, 1 })
	c := dial(t, p.addr)
	c.asked("HELLO 3 AUTH alice a", "%")
	openLane(t, p.addr, "HELLO 3 AUTH alice a")
	c.echoed("before")
	eventually(t, 5*time.Second, "a home and a lane are left", func() bool { return len(laneIDs(admin, " user=alice ")) == 2 })
	all := laneIDs(admin, " user=alice ")
	if len(all) < 2 {
		t.Fatalf("alice's connections: %q", all)
	}
	for _, id := range all {
		attacker.expect("CLIENT TRACKING ON REDIRECT "+id+" BCAST", "+OK\r\n")
		for i := range 200 {
			key := fmt.Sprintf("m:%d:%s", i, strings.Repeat("\r\n+FORGED", i))
			attacker.write(string(resp.AppendCommand(nil, "SET", key, "x")))
			if got := attacker.reply(); got != "+OK\r\n" {
				t.Fatal(got)
			}
		}
		attacker.expect("CLIENT TRACKING OFF", "+OK\r\n")
	}
	time.Sleep(50 * time.Millisecond) // one that was given up would be replaced by then
	if now := laneIDs(admin, " user=alice "); !slices.Equal(now, all) {
		t.Errorf("alice's connections are %q, they were %q", now, all)
	}
	admin.expect("ACL SETUSER alice resetpass >b", "+OK\r\n")
	for i := range 5 {
		c.echoed(fmt.Sprintf("after%d", i))
	}
}
