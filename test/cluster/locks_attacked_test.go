package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// A server stops, or the way to it falls silent, while clients wait there. Each is answered when
// its time has expired, not that another holds the lock, and holds nothing when the server is back.
// Locks of other nodes are taken, and renewed, also where a node knows no scripts any more.
func TestWaitersAtAServerThatVanishes(t *testing.T) {
	t.Parallel()
	for name, up := range startBothKinds(t, 0, "--cluster-require-full-coverage", "no") {
		for _, how := range []string{"stopped", "silent"} {
			t.Run(name+", "+how, func(t *testing.T) {
				p := proxytest.Start(t, up.url, func(cfg *proxy.Config) {
					cfg.DialTimeout = time.Second
				})
				q := proxytest.Start(t, up.url, nil)
				key := func(n int) string { return fmt.Sprintf("%s%s%d", up.tag, how, n) }
				holder := proxytest.Dial(t, p.Addr)
				for i := range 3 {
					testwait.Until(t, "a lock is taken", func() bool {
						return holder.Do("LOCK " + key(i) + " 600")[0] == ':'
					})
				}
				session, kept := proxytest.Dial(t, p.Addr), map[string]*testredis.Server{}
				for i := 0; name == "cluster" && i < 8; i++ {
					k := fmt.Sprintf("{kept%d}%s", i, how)
					if at := up.cluster.MasterOf(up.cluster.Slot(k)); at != up.at {
						session.Lock(k + " 30 SESSION")
						kept[k] = at
					}
				}
				var waiters []*proxytest.Conn
				ask := func(i int) { waiters[i].Send(fmt.Sprintf("LOCK %s 60 WAIT 3", key(i%3))) }
				for _, at := range []*proxytest.Proxy{p, p, p, q, q} {
					w := proxytest.Dial(t, at.Addr)
					testwait.Until(t, "it is served",
						func() bool { return w.Do("PING") == "+PONG\r\n" })
					waiters = append(waiters, w)
				}
				vanish, back := up.at.Pause, up.at.Resume
				if how == "silent" {
					vanish, back = up.at.Link.Hold, up.at.Link.Release
				}
				defer back()
				twoWait := func() { // already, when it vanishes
					ask(0)
					ask(1)
					testwait.Until(t, "two wait, or have waited", func() bool {
						return p.Server.Stats().Locks.Waiters == 2 || waiters[0].Arrived() ||
							waiters[1].Arrived()
					})
					vanish()
				}
				twoWait()
				for i := 2; i < len(waiters); i++ {
					ask(i)
				}
				if name == "cluster" {
					for _, at := range kept {
						at.Ask("SCRIPT", "FLUSH")
					}
					for k := range kept {
						awaitLock(t, p, k+"x")
					}
				}
				told := func(i int) (wrong string) {
					got, err := waiters[i].TryReply()
					if err != nil || !strings.HasPrefix(got, "-UPSTREAM ") {
						wrong = fmt.Sprintf("waiter %d: %q, %v\n", i, got, err)
					}
					return wrong
				}
				wrong, others := told(0)+told(1), told(2)+told(3)+told(4)
				for range 4 { // the time of the two can be over before, on a slow machine
					if wrong != "" {
						back()
						twoWait()
						wrong = told(0) + told(1)
					}
				}
				if wrong+others != "" {
					t.Error(wrong + others)
				}
				expires := map[string]string{}
				for k, at := range kept {
					expires[k] = at.Ask("GET", k)
				}
				for k, at := range kept {
					testwait.Until(t, "the session lock of another node is renewed",
						func() bool { return at.Ask("GET", k) != expires[k] })
					if at.Ask("EXISTS", k) != ":1" {
						t.Errorf("the session lock %s of another node is lost", k)
					}
				}
				back()
				next := proxytest.Dial(t, q.Addr)
				for i := range 3 {
					up.at.Ask("DEL", key(i))
					testwait.Until(t, "locks are free", func() bool {
						return next.Do(fmt.Sprintf("LOCK %s 600 WAIT 1", key(i)))[0] == ':'
					})
				}
			})
		}
	}
}

// awaitLock returns once a client has had a lock. Requests in flight next to those for a silent
// node, on the same shared connection, are held up (docs/cluster.md), but not those of later
// clients: so there is another client from time to time.
func awaitLock(t *testing.T, p *proxytest.Proxy, key string) {
	t.Helper()
	var clients []*proxytest.Conn
	looks := 0
	testwait.Until(t, "a lock of another node is taken", func() bool {
		if looks%50 == 0 {
			c := proxytest.Dial(t, p.Addr)
			c.Send(fmt.Sprintf("LOCK %s:%d 600", key, looks))
			clients = append(clients, c)
		}
		looks++
		for _, c := range clients {
			if c.Arrived() {
				return proxytest.Token(t, c.Reply()) > 0
			}
		}
		return false
	})
}

// A client gives up before its token has come and asks again with the same OWNER, by the same proxy
// or another: it keeps the lock that it is told of.
func TestOwnersRetryAtSeveralServers(t *testing.T) {
	t.Parallel()
	for name, up := range startBothKinds(t, 0) {
		t.Run(name, func(t *testing.T) {
			p, q := proxytest.Start(t, up.url, nil), proxytest.Start(t, up.url, nil)
			others := proxytest.Dial(t, q.Addr)
			for n, how := range []string{"", " SESSION", " WAIT 600"} {
				for i, at := range []*proxytest.Proxy{p, q} {
					key := fmt.Sprintf("%sjob:%d:%d", up.tag, n, i)
					c := proxytest.SharedClient(t, p.Addr)
					again := proxytest.SharedClient(t, at.Addr)
					up.at.Link.HoldReplies()
					c.Send("LOCK " + key + " 600" + how + " OWNER me")
					testwait.Until(t, "its token is on its way", up.at.Link.Holding)
					c.Close()
					again.Send("LOCK " + key + " 600" + how + " OWNER me")
					up.at.Link.Release()
					token := proxytest.Token(t, again.Reply())
					others.Expect("LOCK "+key+" 600", "$-1\r\n")
					again.Expect(fmt.Sprintf("RELOCK %s %d 600", key, token), ":1\r\n")
					again.Expect(proxytest.Unlock(key, token), ":1\r\n")
				}
			}
		})
	}
}

// After a failover an owner finds its lock again at other proxies, with the same token, and the end
// of its connections doesn't release it.
func TestOwnersRetryAcrossAFailover(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1)
	group := testredis.StartGroup(t, testredis.GroupOptions{})
	for name, up := range map[string]struct {
		url      string
		failover func()
	}{
		"cluster": {cluster.URL(), func() {
			cluster.KillMaster(cluster.MasterOf(cluster.Slot("job")))
		}},
		"sentinel": {group.URL(), func() {
			old := group.Master()
			old.Kill()
			group.WaitReplaced(t, old)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			safe := proxytest.Start(t, up.url, proxytest.WithSlowReplicas(1))
			p, q := proxytest.Start(t, up.url, nil), proxytest.Start(t, up.url, nil)
			first, third := proxytest.Dial(t, safe.Addr), proxytest.Dial(t, q.Addr)
			token := first.Lock("job 600 OWNER me")
			up.failover()
			var got string
			for i, at := range []*proxytest.Proxy{p, q} {
				testwait.Until(t, "it is answered", func() bool {
					c := proxytest.Dial(t, at.Addr)
					got = c.Do("LOCK job 600 OWNER me")
					c.Close() // not told of the token, for all the proxy knows
					return got[0] != '-'
				})
				if proxytest.Token(t, got) != token {
					t.Errorf("proxy %d: %q, the token is %d", i, got, token)
				}
			}
			first.Close()
			third.ExpectInTime("LOCK job 600 WAIT 0.5", "$-1\r\n")
			third.Expect(fmt.Sprintf("RELOCK job %d 600", token), ":1\r\n")
			third.Expect(proxytest.Unlock("job", token), ":1\r\n")
			if next := third.Lock("job 600"); next <= token {
				t.Errorf("token %d behind %d", next, token)
			}
		})
	}
}
