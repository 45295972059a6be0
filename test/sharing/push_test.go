package sharing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// Unexpected pushes: any user can make Redis send them with CLIENT TRACKING REDIRECT, with key
// names of its choice.

// forgery is such a push. A reader that begins within its key reads the attacker's replies.
var forgery = func() string {
	key := "m:" + strings.Repeat("+++\r\n+FORGED\r\n:666\r\n", 40)
	return fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key)
}()

// The proxy's requests on a new connection are answered by their own replies, whatever pushes come
// before, between and after them.
func TestPushesWhileConnectionsAreSetUp(t *testing.T) {
	const whole, split = "in one write", "in two writes"
	for _, login := range []string{"", "HELLO 3", "AUTH alice a", "HELLO 3 AUTH alice a"} {
		for _, begin := range []struct{ initial, database string }{{"", ""},
			{":secret@", "SELECT 2"}} {
			t.Run(login+"/"+begin.initial, func(t *testing.T) {
				t.Parallel()
				server := testredis.Start(t)
				admin := proxytest.Dial(t, server.Addr())
				if begin.initial != "" {
					admin.Expect("CONFIG SET requirepass secret", "+OK\r\n")
				}
				for _, pieces := range []string{whole, split} {
					for at := -1; at < 6; at++ { // -1 is everywhere
						if pieces == split && at >= 0 {
							break
						}
						admin.Expect("ACL SETUSER alice on resetpass >a ~* &* +@all", "+OK\r\n")
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
						p := proxytest.Start(t, "redis://"+begin.initial+link.Addr(),
							func(cfg *proxy.Config) {
								cfg.Dedicated, cfg.UpstreamConns = proxytest.Dedicated, 1
							})
						pushedTo(t, p, admin, login, begin.database)
						if t.Failed() {
							t.Fatalf("with a push after reply %d, %s", at, pieces)
						}
						p.Server.Close()
					}
				}
			})
		}
	}
}

// pushedTo has two clients served after the same login, and
// once more after its password has been changed.
func pushedTo(t *testing.T, p *proxytest.Proxy, admin *proxytest.Conn, login, database string) {
	var clients []*proxytest.Conn
	for range 2 {
		c := proxytest.Dial(t, p.Addr)
		for _, command := range []string{login, database} {
			if command == "" {
				continue
			}
			c.Send(command)
			if got := c.Answer(); got[0] == '-' {
				t.Fatalf("%s: %q", command, got)
			}
		}
		clients = append(clients, c)
	}
	for i, c := range clients {
		c.Echoed(fmt.Sprintf("first%d", i))
	}
	if !strings.Contains(login, "alice") {
		return
	}
	admin.Expect("ACL SETUSER alice resetpass >b", "+OK\r\n")
	for i, c := range clients {
		c.Echoed(fmt.Sprintf("second%d", i))
		c.Asked("SELECT 5", "+OK\r\n")
		c.Echoed(fmt.Sprintf("third%d", i))
	}
}

// Unexpected pushes do not harm a home or a lane.
func TestPushesToIdleConnections(t *testing.T) {
	server := testredis.Start(t)
	admin, attacker := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER alice on >a ~* &* +@all", "+OK\r\n")
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns = false, 1
	})
	c := proxytest.Dial(t, p.Addr)
	c.Asked("HELLO 3 AUTH alice a", "%")
	proxytest.OpenLane(t, p.Addr, "HELLO 3 AUTH alice a")
	c.Echoed("before")
	testwait.Until(t, "alice has a home and a lane", func() bool {
		return len(laneIDs(admin, " user=alice ")) == 2
	})
	all := laneIDs(admin, " user=alice ")
	if len(all) < 2 {
		t.Fatalf("alice's connections: %q", all)
	}
	for _, id := range all {
		attacker.Expect("CLIENT TRACKING ON REDIRECT "+id+" BCAST", "+OK\r\n")
		for i := range 200 {
			key := fmt.Sprintf("m:%d:%s", i, strings.Repeat("\r\n+FORGED", i))
			attacker.WriteRaw(string(wire.Append(nil, "SET", key, "x")))
			if got := attacker.Reply(); got != "+OK\r\n" {
				t.Fatal(got)
			}
		}
		attacker.Expect("CLIENT TRACKING OFF", "+OK\r\n")
	}
	c.Echoed("again") // a closed one is replaced by then
	if now := laneIDs(admin, " user=alice "); !slices.Equal(now, all) {
		t.Errorf("alice's connections are %q, they were %q", now, all)
	}
	admin.Expect("ACL SETUSER alice resetpass >b", "+OK\r\n")
	for i := range 5 {
		c.Echoed(fmt.Sprintf("after%d", i))
	}
}
