package locks_test

// A client asks again with the same OWNER on another connection: the end of the first connection
// must not take the lock away.

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// owners is a far away Redis behind two proxies, and a third proxy close to it.
type owners struct {
	t      *testing.T
	link   *relay.Relay
	far    [2]*proxytest.Proxy
	near   *proxytest.Proxy
	others *proxytest.Conn // a client of near
}

func startOwners(t *testing.T) *owners {
	server := testredis.Start(t)
	o := &owners{t: t, link: proxytest.LinkTo(t, server), near: proxytest.Start(t, server.URL(),
		nil)}
	for i := range o.far {
		o.far[i] = proxytest.Start(t, "redis://"+o.link.Addr(), nil)
		c := proxytest.SharedClient(t, o.far[i].Addr) // Redis knows the scripts now
		c.Lock(fmt.Sprintf("first:%d 30", i))
		c.Expect(fmt.Sprintf("UNLOCK first:%d", i), ":1\r\n")
	}
	o.others = proxytest.Dial(t, o.near.Addr)
	return o
}

// keeps fails unless the lock stays with a token until a release under way would have come, and the
// token can release it.
func (o *owners) keeps(key string, token int64, c *proxytest.Conn) {
	o.t.Helper()
	if got := o.others.Do("LOCK " + key + " 30 WAIT 0.3"); got != "$-1\r\n" {
		o.t.Errorf("%s: another client was given the lock: %q", key, got)
		return
	}
	c.Expect(fmt.Sprintf("RELOCK %s %d 300", key, token), ":1\r\n")
	c.Expect(proxytest.Unlock(key, token), ":1\r\n")
}

// isFree fails unless the next client gets the lock at once.
func (o *owners) isFree(key string) {
	o.t.Helper()
	began := time.Now()
	if got := o.others.Do("LOCK " + key + " 30 WAIT 300"); got[0] != ':' {
		o.t.Errorf("%s: %q after %v", key, got, time.Since(began))
		return
	}
	o.others.Expect("UNLOCK "+key, ":1\r\n")
}

// Two connections of an owner close without having read their tokens: no client has the lock, and
// it is free at once.
func TestOwnersUnreadTokensAreReleased(t *testing.T) {
	t.Parallel()
	o := startOwners(t)
	o.link.Set(relay.Link{Latency: 20 * time.Millisecond})
	for i := range o.far {
		for _, how := range []string{"", " SESSION", " WAIT 300"} {
			key := fmt.Sprintf("job:%d:%s", i, how[min(1, len(how)):min(2, len(how))])
			var closing sync.WaitGroup
			for _, p := range []*proxytest.Proxy{o.far[0], o.far[i]} {
				c := proxytest.SharedClient(t, p.Addr)
				c.Send("LOCK " + key + " 30" + how + " OWNER me")
				time.Sleep(3 * time.Millisecond)
				closing.Go(func() { c.Close() })
			}
			closing.Wait()
			time.Sleep(200 * time.Millisecond)
			o.isFree(key)
		}
	}
}
