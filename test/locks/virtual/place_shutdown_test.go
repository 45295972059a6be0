//go:build !race

package virtual_test

import (
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A proxy ends at any moment near to the one in which a place there is given the lock: its next
// waiter, at another proxy, has the lock at once.
func TestAProxyEndsWhileItsPlaceTakesTheLock(t *testing.T) {
	for step := range 16 {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			link := proxytest.LinkTo(t, store)
			link.Away(100 * time.Millisecond)
			ends := proxytest.Start(t, "redis://"+link.Addr(), nil)
			p := proxytest.Start(t, store.URL(), nil)
			holder, c, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, ends.Addr),
				proxytest.Dial(t, p.Addr)
			held := holder.Lock("job 600")
			c.Expect("LOCK job 60 PLACE 60", "$-1\r\n")
			time.Sleep(2 * time.Second)
			next.Send("LOCK job 60 WAIT 0")
			time.Sleep(2 * time.Second)
			wait := proxytest.Shutdown(proxytest.Ctx, t, ends)
			time.Sleep(800*time.Millisecond + time.Duration(step)*25*time.Millisecond)
			holder.Expect(proxytest.Unlock("job", held), ":1\r\n")
			if err := wait(); err != nil {
				t.Error(err)
			}
			ended := time.Now()
			proxytest.Token(t, next.Reply())
			if took := time.Since(ended); took > 2*time.Second {
				t.Errorf("step %d: the lock is free %v after the end of its proxy", step, took)
			}
		})
	}
}

// A proxy with places ends while Redis is silent: the answers that it waits for have a bound.
func TestAProxyWithPlacesEndsWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, q := virtualtest.StartBoth(t)
		holder := proxytest.Dial(t, q.Addr)
		for step := range 10 {
			p := proxytest.Start(t, store.URL(), nil)
			c := proxytest.Dial(t, p.Addr)
			held, other := holder.Lock("job 600"), holder.Lock("other 600")
			c.Expect("LOCK job 60 PLACE 60", "$-1\r\n")
			c.Expect("LOCK other 60 PLACE 60", "$-1\r\n")
			holder.Expect(proxytest.Unlock("other", other), ":1\r\n")
			time.Sleep(time.Second) // the place has it now
			store.Pause()
			time.Sleep(time.Duration(step) * 500 * time.Millisecond)
			began := time.Now()
			if err := proxytest.Shutdown(proxytest.Ctx, t, p)(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the proxy ends after %v", took)
			}
			store.Resume()
			holder.Expect(proxytest.Unlock("job", held), ":1\r\n")
			holder.Do("UNLOCK other FORCE")
		}
	})
}
