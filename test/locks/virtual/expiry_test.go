//go:build !race

package virtual_test

import (
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A proxy that shuts down waits for a lock that expires as it does for one that is released, and
// then closes its client. The lock is counted as expired.
func TestDrainEndsWithALease(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Lock("job 3600")
		wait := proxytest.Shutdown(proxytest.Ctx, t, p)
		time.Sleep(59 * time.Minute)
		c.Expect("GET job:state", "$-1\r\n")
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		c.Closed()
		if err := wait(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		time.Sleep(time.Minute) // a release could still be on its way
		if l := p.Server.Stats().Locks; l.Expired != 1 || l.Holding != 0 {
			t.Errorf("locks: %+v", l)
		}
	})
}
