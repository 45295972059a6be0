package real_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd/keyname"
	"lockproxy/proxy"
)

// Nothing that one client does, or that happens to its connections, keeps a lock from others that
// is free: of each upstream, in each mode, for each command that waits.
func TestWaitsOfOthersKeepNothing(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *waitsAt{
		"single": waitsAtOne, "sentinel": waitsAtSentinel, "cluster": waitsAtCluster,
	} {
		for mode, change := range map[string]func(*proxy.Config){
			"shared":    func(cfg *proxy.Config) { cfg.Dedicated = false },
			"dedicated": func(cfg *proxy.Config) { cfg.Dedicated = true },
		} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				u := start(t)
				p := proxytest.Start(t, u.url, change)
				c := proxytest.Dial(t, p.Addr)
				testwait.Until(t, "it is served",
					func() bool { return c.Do("PING") == "+PONG\r\n" })
				for scenario, run := range waitScenarios {
					var locks []waitKind
					for i, k := range waitKinds {
						key := strings.ReplaceAll(scenario, " ", "-")
						locks = append(locks, k.at(fmt.Sprintf("{%s%d}", key, i)))
					}
					t.Run(scenario, func(t *testing.T) { run(t, u, p, locks) })
				}
			})
		}
	}
}

// waitsAt is an upstream whose connections can become silent.
type waitsAt struct {
	t       *testing.T
	url     string
	servers []*testredis.Server
	links   []*badlink.Link
}

func waitsAtOne(t *testing.T) *waitsAt {
	server := testredis.Start(t)
	link := proxytest.LinkTo(t, server)
	return &waitsAt{t, "redis://" + link.Addr(), []*testredis.Server{server}, []*badlink.Link{link}}
}

func waitsAtSentinel(t *testing.T) *waitsAt {
	u := waitsAtOne(t)
	sentinel := testredis.StartSentinel(t, u.links[0].Addr())
	u.url = "redis+sentinel://" + sentinel.Addr() + "/mymaster"
	return u
}

func waitsAtCluster(t *testing.T) *waitsAt {
	cluster := testredis.StartLinkedCluster(t, 0, 3, 0)
	u := &waitsAt{t: t, url: cluster.URL(), servers: cluster.Nodes}
	for _, node := range cluster.Nodes {
		u.links = append(u.links, node.Link)
	}
	return u
}

// freeze has all open connections become silent: what is sent on them is acknowledged, and comes
// when they thaw. New ones are served.
func (u *waitsAt) freeze() {
	for _, link := range u.links {
		link.Freeze()
	}
}

func (u *waitsAt) thaw() {
	for _, link := range u.links {
		link.Thaw()
	}
	for _, link := range u.links {
		testwait.Until(u.t, "what was held has passed", func() bool { return !link.Holding() })
	}
	for _, server := range u.servers { // it has read what had come before the first of these
		server.Ask("PING")
		server.Ask("PING")
	}
}

// lose is thaw, but the answers to what was held are lost with all connections.
func (u *waitsAt) lose() {
	scripts := func() (n int) {
		for _, server := range u.servers {
			n += stat(server.Ask("INFO", "commandstats"), `cmdstat_evalsha:calls=(\d+)`)
		}
		return n
	}
	before := scripts()
	for _, link := range u.links {
		link.HoldReplies()
		link.Thaw()
	}
	testwait.Until(u.t, "scripts have run", func() bool { return scripts() > before })
	for _, server := range u.servers {
		server.Ask("PING")
	}
	for _, link := range u.links {
		link.Cut()
		link.Release()
	}
}

// blocked is how many clients are blocked.
func (u *waitsAt) blocked() (n int) {
	for _, server := range u.servers {
		if !strings.Contains(server.Ask("INFO", "clients"), "blocked_clients:0\r\n") {
			n++
		}
	}
	return n
}

// waitKind is a command that can wait, for locks at a key.
type waitKind struct {
	command string // without WAIT
	lock    string // the key of a lock that it asks for
	release string // with the token at its end
}

var waitKinds = []waitKind{
	{"LOCK {k} 600", "{k}", "UNLOCK {k}"},
	{"LOCK {k} 600 SHARED", "{k}", "UNLOCK {k}"},
	{"LOCKALL 600 2 {k} {k}b", "{k}", "UNLOCKALL %d 2 {k} {k}b"},
	{"ONCE {k} 600", keyname.Claim([]byte("{k}")), "DONE {k}"},
}

// at is the kind for a key.
func (k waitKind) at(key string) waitKind {
	set := strings.NewReplacer("{k}", key)
	return waitKind{set.Replace(k.command), set.Replace(k.lock), set.Replace(k.release)}
}

// releaseBy releases what has been taken with a token.
func (k waitKind) releaseBy(c *proxytest.Conn, token int64) {
	switch command := strings.Replace(k.release, "%d", fmt.Sprint(token), 1); {
	case command != k.release:
		c.Expect(command, ":2\r\n")
	default:
		c.Expect(fmt.Sprintf("%s %d", command, token), ":1\r\n")
	}
}

// takenBy takes the lock, by a client that does not wait and one that does, and releases it again.
func (k waitKind) takenBy(t *testing.T, c *proxytest.Conn) {
	t.Helper()
	for _, wait := range []string{"", " WAIT 0"} {
		k.releaseBy(c, proxytest.Token(t, c.Do(k.command+wait)))
	}
}

// freeFor is takenBy once nothing has the lock that was on its way when its client had left.
func (k waitKind) freeFor(t *testing.T, c *proxytest.Conn) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s: %q", k.lock, got)
		}
	}()
	testwait.Until(t, "the lock is free", func() bool {
		if got = c.Do("LOCKINFO " + k.lock); got == "$-1\r\n" {
			got = c.Do(k.command) // a LOCKALL has another lock, too
		}
		return got[0] == ':'
	})
	k.releaseBy(c, proxytest.Token(t, got))
	k.takenBy(t, c)
}

// waitScenarios are what a client does, or happens to it, by their names.
var waitScenarios = map[string]func(*testing.T, *waitsAt, *proxytest.Proxy, []waitKind){
	"blocked":         waitBehindBlocked,
	"released behind": releaseBehindBlocked,
	"silent":          waitOnSilent,
	"silent first":    waitBeginsOnSilent((*waitsAt).thaw),
	"lost first":      waitBeginsOnSilent((*waitsAt).lose),
	"late":            waitAnsweredLate,
}

// A client waits for something else in front of its wait.
func waitBehindBlocked(t *testing.T, u *waitsAt, p *proxytest.Proxy, locks []waitKind) {
	for _, k := range locks {
		blocked, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		list := k.lock + "list"
		blocked.Send("BLPOP "+list+" 0", k.command+" WAIT 0")
		testwait.Until(t, "it is blocked", func() bool { return u.blocked() > 0 })
		k.takenBy(t, other)
		other.Expect("RPUSH "+list+" x", ":1\r\n")
		blocked.WantReply("*2\r\n" + wire.Bulk(list) + wire.Bulk("x"))
		k.releaseBy(blocked, proxytest.Token(t, blocked.Reply()))
	}
}

// A client releases a lock for which others wait, behind a command that blocks. Until then it names
// none of them, so that another release can give it to them.
func releaseBehindBlocked(t *testing.T, u *waitsAt, p *proxytest.Proxy, locks []waitKind) {
	for _, k := range locks {
		blocked, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		list := k.lock + "list"
		token := proxytest.Token(t, other.Do(k.command))
		waiter := proxytest.Dial(t, p.Addr)
		waiter.Send(strings.Replace(k.command, " SHARED", "", 1) + " WAIT 0")
		proxytest.AwaitWaiters(t, p, k.lock, 1)
		blocked.Send("BLPOP "+list+" 0", fmt.Sprintf("UNLOCK %s %d", k.lock, token))
		testwait.Until(t, "it is blocked", func() bool { return u.blocked() > 0 })
		k.releaseBy(other, token)
		token = proxytest.Token(t, waiter.Reply())
		other.Expect("RPUSH "+list+" x", ":1\r\n")
		blocked.WantReply("*2\r\n" + wire.Bulk(list) + wire.Bulk("x"))
		blocked.WantReply(":0\r\n")
		k.releaseBy(other, token)
	}
}

// The connections of clients that wait become silent. What was sent on them comes much later.
func waitOnSilent(t *testing.T, u *waitsAt, p *proxytest.Proxy, locks []waitKind) {
	tokens, waiters := make([]int64, len(locks)), make([][]*proxytest.Conn, len(locks))
	before := proxytest.Dial(t, proxytest.Start(t, u.url, nil).Addr)
	for i, k := range locks {
		tokens[i] = proxytest.Token(t, before.Do(k.command))
		for n := range 2 {
			w := proxytest.Dial(t, p.Addr)
			w.Expect("PING", "+PONG\r\n")
			w.Send(strings.Replace(k.command, " SHARED", "", 1) + " WAIT 0")
			proxytest.AwaitWaiters(t, p, k.lock, n+1)
			waiters[i] = append(waiters[i], w)
		}
	}
	u.freeze()
	after := proxytest.Dial(t, proxytest.Start(t, u.url, nil).Addr)
	for i, k := range locks {
		waiters[i][0].Close() // it was first
		k.releaseBy(after, tokens[i])
		k.releaseBy(after, proxytest.Token(t, waiters[i][1].Reply()))
		other := proxytest.Dial(t, p.Addr) // without WAIT it would use the connection of before
		k.releaseBy(after, proxytest.Token(t, other.Do(k.command+" WAIT 0")))
	}
	u.thaw()
	for _, k := range locks {
		k.freeFor(t, after)
	}
}

// The connection of a client is silent before it begins to wait for a lock that is free. It asks by
// another, is given the lock, and releases it before the first question comes. A ONCE does not get
// there: it reads by that connection, as GET does.
func waitBeginsOnSilent(end func(*waitsAt)) func(
	*testing.T, *waitsAt, *proxytest.Proxy, []waitKind) {
	return func(t *testing.T, u *waitsAt, p *proxytest.Proxy, locks []waitKind) {
		locks = withoutOnce(locks)
		var clients []*proxytest.Conn
		for range locks {
			c := proxytest.Dial(t, p.Addr)
			c.Expect("PING", "+PONG\r\n")
			clients = append(clients, c)
		}
		u.freeze()
		after := proxytest.Dial(t, proxytest.Start(t, u.url, nil).Addr)
		for i, k := range locks {
			clients[i].Send(k.command + " WAIT 0")
		}
		for i, k := range locks {
			k.releaseBy(after, proxytest.Token(t, clients[i].Reply()))
			k.takenBy(t, after)
		}
		end(u)
		after = proxytest.Dial(t, p.Addr)
		for _, k := range locks {
			k.freeFor(t, after)
		}
	}
}

func withoutOnce(locks []waitKind) []waitKind {
	return slices.DeleteFunc(locks,
		func(k waitKind) bool { return strings.HasPrefix(k.command, "ONCE") })
}

// The first script of a wait is answered when its wait has ended, while others wait.
func waitAnsweredLate(t *testing.T, u *waitsAt, p *proxytest.Proxy, locks []waitKind) {
	for _, k := range withoutOnce(locks) {
		c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		c.Expect("PING", "+PONG\r\n")
		other.Expect("PING", "+PONG\r\n")
		for _, link := range u.links {
			link.HoldReplies()
		}
		waiting := func(n int) func() bool { // on a slow machine its wait can have ended before
			return func() bool {
				ended, left := c.Arrived(), p.Server.Stats().Locks.Waiters
				return left == n || ended && left == n-1
			}
		}
		c.Send(k.command + " WAIT 0.1")
		testwait.Until(t, "it waits", waiting(1))
		other.Send(k.command + " WAIT 0")
		testwait.Until(t, "both wait", waiting(2))
		if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("%s: a wait that ends while Redis is silent is answered %q", k.command, got)
		}
		for _, link := range u.links {
			link.Release()
		}
		k.releaseBy(other, proxytest.Token(t, other.Reply()))
		k.takenBy(t, proxytest.Dial(t, p.Addr))
	}
}

// A client whose connection has become silent, and whose login is no longer accepted, waits no
// longer: nobody can ask for it. Those behind it do.
func TestSilentClientThatIsLetInNoMoreKeepsNothing(t *testing.T) {
	t.Parallel()
	u := waitsAtOne(t)
	admin := proxytest.Dial(t, proxytest.Start(t, u.servers[0].URL(), nil).Addr)
	for _, user := range []string{"first", "second"} {
		admin.Expect("ACL SETUSER "+user+" on >pw ~* &* +@all", "+OK\r\n")
	}
	p := proxytest.Start(t, u.url, nil)
	for _, k := range []string{"LOCK k 600", "LOCKALL 600 1 k"} {
		token := admin.Lock("k 600")
		var waiters []*proxytest.Conn
		for i, user := range []string{"first", "second"} {
			w := proxytest.Dial(t, p.Addr)
			w.Expect("AUTH "+user+" pw", "+OK\r\n")
			w.Send(k + " WAIT 0")
			proxytest.AwaitWaiters(t, p, "k", i+1)
			waiters = append(waiters, w)
		}
		admin.Expect("ACL SETUSER first >other <pw", "+OK\r\n")
		u.freeze()
		admin.Expect(proxytest.Unlock("k", token), ":1\r\n")
		token = proxytest.Token(t, waiters[1].Reply())
		if got := waiters[0].Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("the first is answered %q", got)
		}
		u.thaw()
		admin.Expect(proxytest.Unlock("k", token), ":1\r\n")
		admin.Expect("ACL SETUSER first >pw <other", "+OK\r\n")
	}
}
