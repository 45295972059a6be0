//go:build !race

package virtual_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// Tokens rise although the upstream's clock stands, whichever way a lock is taken.
func TestTokensRiseWithinAMicrosecond(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		began, last := time.Now(), int64(0)
		rises := func(how, reply string) {
			t.Helper()
			token, err := strconv.ParseInt(strings.Trim(reply, ":\r\n"), 10, 64)
			if err != nil || token <= last {
				t.Errorf("%s: %q behind %d", how, reply, last)
			}
			last = token
		}
		for range 3 {
			rises("LOCK", a.Do("LOCK job 3600"))
			for _, kind := range []string{"", " SHARED"} {
				for _, waiter := range []*proxytest.Conn{b, c} {
					waiter.Send("LOCK job 3600 WAIT 0" + kind)
					synctest.Wait()
				}
				a.Expect("UNLOCK job", ":1\r\n")
				rises("a hand-over"+kind, b.Reply())
				if kind == "" {
					b.Expect("UNLOCK job", ":1\r\n")
				}
				rises("a second one"+kind, c.Reply())
				if kind != "" {
					b.Expect("UNLOCK job", ":1\r\n")
				}
				a, c = c, a
			}
			rises("SHARED", b.Do("LOCK job 3600 SHARED"))
			a.Expect("UNLOCK job", ":1\r\n")
			b.Expect("UNLOCK job", ":1\r\n")
			rises("LOCKALL", a.Do("LOCKALL 3600 2 job job2"))
			a.Expect(fmt.Sprintf("UNLOCKALL %d 2 job job2", last), ":2\r\n")
		}
		if passed := time.Since(began); passed > 0 {
			t.Errorf("%v have passed", passed)
		}
	})
}
