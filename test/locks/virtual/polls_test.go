//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/search"
)

// Clients that wait for many locks ask by connections of the proxy's own, once theirs have been
// silent. These are a few, which stay open: polls that come while another is under way share the
// next connection.
func TestPollsOfManyLocksShareConnections(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, store)
		link.Away(10 * time.Millisecond)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		const locks = 80
		holder := proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
		for i := range locks {
			holder.Lock(fmt.Sprintf("lock-%d 600", i))
			proxytest.Dial(t, p.Addr).Send(fmt.Sprintf("LOCK lock-%d 30 WAIT 600", i))
			time.Sleep(time.Millisecond) // so that they do not ask all at once
		}
		link.Away(400 * time.Millisecond)
		time.Sleep(4 * time.Second)
		link.Away(10 * time.Millisecond)
		time.Sleep(4 * time.Second)
		opened, scripts := store.Calls("INFO"), store.Scripts()
		time.Sleep(3 * time.Second)
		opened, scripts = store.Calls("INFO")-opened, store.Scripts()-scripts
		t.Logf("%d connections were opened for %d scripts", opened, scripts)
		if opened > 5 || scripts < locks {
			t.Errorf("%d connections were opened for %d scripts", opened, scripts)
		}
	})
}

// A LOCKALL whose owner has some of its locks already waits until these end, and polls no more
// often than for another's, where deadlocks are not refused.
func TestALockAllForOwnLocksPollsSeldom(t *testing.T) {
	for _, owner := range []string{"me", "other"} {
		t.Run(owner, func(t *testing.T) {
			virtualtest.Run(t, func(t *testing.T) {
				store := virtualtest.StartStore(t)
				p := proxytest.Start(t, store.URL(), deadlockMode(search.Off))
				a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
				a.Lock("one 12.1 OWNER " + owner)
				before := store.Scripts()
				b.Send("LOCKALL 60 2 one two WAIT 0 OWNER me")
				time.Sleep(10 * time.Second)
				if n := store.Scripts() - before; n < 30 || n > 60 {
					t.Errorf("%d scripts in 10 s", n)
				}
				began := time.Now()
				proxytest.Token(t, b.Reply())
				if took := time.Since(began); took > 2110*time.Millisecond {
					t.Errorf("it has the locks after %v more", took)
				}
			})
		})
	}
}
