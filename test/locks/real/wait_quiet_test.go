package real_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// A wait costs Redis nothing while nothing happens. Other proxies know of it all the same, so that
// nobody overtakes it, and it hears of a release through another proxy, and of a DEL past all.
func TestQuietWaitCostsNothing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p, elsewhere := proxytest.Start(t, server.URL(), nil), proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	holder, other := proxytest.Dial(t, elsewhere.Addr), proxytest.Dial(t, elsewhere.Addr)
	token := holder.Lock("job 3600")
	waiters := []*proxytest.Conn{proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)}
	for i, w := range waiters {
		w.Expect("PING", "+PONG\r\n")
		w.Send("LOCK job 3600 WAIT 0")
		proxytest.AwaitWaiters(t, p, "job", i+1)
	}
	polls := startPolls(t)
	polls.awaitSilence(direct)
	polls.pass(6) // more than a second
	if info := other.Do("LOCKINFO job"); !strings.Contains(info, "waiters_elsewhere\r\n:1\r\n") {
		t.Errorf("other proxies do not know that a client waits: %q", info)
	}
	holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
	other.Expect("LOCK job 3600", "$-1\r\n") // it overtakes nobody
	proxytest.Token(t, waiters[0].Reply())
	polls.awaitSilence(direct)
	direct.Del(proxytest.Ctx, "job")
	proxytest.Token(t, waiters[1].Reply())
}
