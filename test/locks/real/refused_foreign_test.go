package real_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// A command that Redis refuses takes no lock, so its sender does not compete with the waiters: the
// lock is still handed over in order of arrival. An accepted command does compete.
func TestRefusedCommandsDoNotCompete(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	direct.Do(proxytest.Ctx, "ACL", "SETUSER", "mallory", "on", ">m", "~m:*", "&*", "+@all")
	sha := direct.ScriptLoad(proxytest.Ctx, "return 1").Val()
	for _, c := range []struct{ name, commands string }{
		{"SETNX", "SETNX {} 1"},
		{"SET-NX", "SET {} 1 NX PX 1000"},
		{"GETSET", "GETSET {} VALUE|PEXPIRE {} 310000"},
		{"EVAL", "EVAL return(1) 1 {}"},
		{"EVALSHA", "EVALSHA " + sha + " 1 {}"},
		{"MULTI", "MULTI|SETNX {} 1|EXEC"},
	} {
		for _, first := range []string{"", "PING|PING|"} { // on a home, and on a lane
			name := c.name + ":" + strings.ReplaceAll(first, "|", "")
			t.Run(name, func(t *testing.T) {
				commands := strings.Split(first+c.commands, "|")
				if foreignCompetes(t, p, direct, 5, "refused:"+name, "AUTH mallory m", commands) {
					t.Error("after a refused command the lock was not handed over to its waiter")
				}
				// A machine that stops for seconds lets the proxy forget that it has seen one.
				if !foreignCompetes(t, p, direct, 20, "accepted:"+name, "PING", commands) {
					t.Error("after an accepted command the lock was handed over past its sender")
				}
			})
		}
	}
}

// foreignCompetes reports whether one of several releases leaves the lock free for foreign clients.
// Before each, a client that logged in at the beginning sends commands. The proxy counts hand-overs
// before it answers the release; for how long a lock is free is a matter of the machine.
func foreignCompetes(
	t *testing.T, p *proxytest.Proxy, direct *redis.Client,
	releases int, key, login string, commands []string,
) bool {
	t.Helper()
	holder, waiter, foreign := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	foreign.Do(login)
	for range releases {
		token := holder.Lock(key + " 300")
		waiter.Send("LOCK " + key + " 300 WAIT 300")
		proxytest.AwaitWaiters(t, p, key, 1)
		fill := strings.NewReplacer("{}", key, "VALUE", direct.Get(proxytest.Ctx, key).Val())
		for _, command := range commands {
			foreign.Do(fill.Replace(command))
		}
		before := p.Server.Stats().Locks.HandedOver
		holder.Expect(proxytest.Unlock(key, token), ":1\r\n")
		free := p.Server.Stats().Locks.HandedOver == before
		got := waiter.Reply()
		waiter.Do("UNLOCK " + key + " " + strings.TrimSpace(got[1:]))
		if free {
			return true
		}
	}
	return false
}
