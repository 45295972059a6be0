//go:build !race

package virtual_test

import (
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// Redis refuses to give a client the lock that its place has taken, since the user may not run
// scripts for a moment. The place keeps the lock, and the client has it for its own lease later.
func TestATakeoverThatIsRefused(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		for _, ask := range []string{"LOCK job 5 PLACE 30 OWNER me", "LOCK job 5 SHARED PLACE 30",
			"LOCK job 5 PLACE 30"} {
			holder, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			held := holder.Lock("job 600")
			c.Expect(ask, "$-1\r\n")
			holder.Expect(proxytest.Unlock("job", held), ":1\r\n")
			time.Sleep(time.Second)
			store.Refuse("NOPERM it may not", "EVAL", "EVALSHA")
			c.Expect(ask, "-NOPERM …")
			time.Sleep(10 * time.Millisecond) // nor is anything that the proxy tries allowed
			store.Answer(nil, "EVAL", "EVALSHA")
			token := proxytest.Token(t, c.Do(ask))
			began := time.Now()
			next := proxytest.Token(t, holder.Do("LOCK job 1 WAIT 60"))
			if took := time.Since(began); took > 6*time.Second || next <= token {
				t.Errorf("%s: token %d, and after %v token %d", ask, token, took, next)
			}
			holder.Expect(proxytest.Unlock("job", next), ":1\r\n")
		}
	})
}
