package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd/keyname"
)

// A client that waits for something else does not wait for a lock yet: its LOCK … WAIT begins when
// what it sent before has been answered. So a free lock is anybody's meanwhile.
func TestLockBehindABlockedCommandKeepsNothing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	sentinel := testredis.StartSentinel(t, server.Addr())
	cluster := testredis.StartCluster(t, 3, 0)
	for name, url := range map[string]string{
		"single": server.URL(), "cluster": cluster.URL(),
		"sentinel": "redis+sentinel://" + sentinel.Addr() + "/mymaster",
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, url, nil)
			blocks := func() (n int) {
				for _, node := range append([]*testredis.Server{server}, cluster.Nodes...) {
					if strings.Contains(node.Ask("INFO", "clients"), "blocked_clients:1\r\n") {
						n++
					}
				}
				return n
			}
			for i, command := range []string{
				"LOCK {k} 600", "LOCKALL 600 2 {k} {k}b", "ONCE {k} 600",
			} {
				key := fmt.Sprintf("{%s%d}", name, i)
				command = strings.ReplaceAll(command, "{k}", key)
				blocked, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
				list := "list" + key
				blocked.Send("BLPOP "+list+" 0", command+" WAIT 0")
				testwait.Until(t, "it is blocked", func() bool { return blocks() == 1 })
				for range 2 { // with WAIT, and without
					token := proxytest.Token(t, other.Do(command))
					switch {
					case strings.HasPrefix(command, "ONCE"):
						other.Expect(fmt.Sprintf("DONE %s %d", key, token), ":1\r\n")
					case strings.HasPrefix(command, "LOCKALL"):
						other.Expect(fmt.Sprintf("UNLOCKALL %d 2 %s %sb", token, key, key), ":2\r\n")
					default:
						other.Expect(proxytest.Unlock(key, token), ":1\r\n")
					}
					command += " WAIT 0"
				}
				other.Expect("RPUSH "+list+" x", ":1\r\n")
				blocked.WantReply("*2\r\n" + wire.Bulk(list) + wire.Bulk("x"))
				proxytest.Token(t, blocked.Reply())
			}
		})
	}
}

// Connections that become silent, though what is sent on them is acknowledged and new ones are
// served, keep a lock from nobody that is released elsewhere: neither from those who wait then, nor
// when they leave, from those who come.
func TestSilentConnectionsKeepNoLock(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := proxytest.LinkTo(t, server)
	sentinel := testredis.StartSentinel(t, link.Addr())
	elsewhere := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
	var frozen []silentLock
	for name, url := range map[string]string{
		"single":   "redis://" + link.Addr(),
		"sentinel": "redis+sentinel://" + sentinel.Addr() + "/mymaster",
	} {
		p := proxytest.Start(t, url, nil)
		for _, command := range []string{"LOCK k 600", "LOCKALL 600 1 k", "ONCE k 600"} {
			key := name + strings.Fields(command)[0]
			command = strings.ReplaceAll(command, " k", " "+key)
			l := silentLock{p: p, command: command, key: key}
			l.token = proxytest.Token(t, elsewhere.Do(command))
			if strings.HasPrefix(command, "ONCE") {
				l.key = keyname.Claim([]byte(key))
			}
			for n := range 2 {
				w := proxytest.Dial(t, p.Addr)
				w.Expect("PING", "+PONG\r\n")
				w.Send(command + " WAIT 0")
				proxytest.AwaitWaiters(t, p, l.key, n+1)
				l.waiters = append(l.waiters, w)
			}
			frozen = append(frozen, l)
		}
	}
	link.Freeze()
	for _, l := range frozen {
		l.waiters[0].Close() // it was first
		elsewhere.Expect(fmt.Sprintf("UNLOCK %s %d", l.key, l.token), ":1\r\n")
		proxytest.Token(t, l.waiters[1].Reply())
		elsewhere.Expect("UNLOCK "+l.key+" FORCE", ":1\r\n")
		proxytest.Token(t, proxytest.Dial(t, l.p.Addr).Do(l.command+" WAIT 0"))
	}
}

// silentLock is a lock for which clients wait whose connections become silent.
type silentLock struct {
	p            *proxytest.Proxy
	command, key string
	token        int64
	waiters      []*proxytest.Conn
}
