//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

func TestRelock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		direct := proxytest.GoRedis(t, server.Addr())
		token := c.Lock("job 30")
		c.Expect(fmt.Sprintf("RELOCK job %d 5", token), ":1\r\n")
		if ttl := direct.PTTL(proxytest.Ctx, "job").Val(); ttl > 5*time.Second ||
			ttl < 4900*time.Millisecond {
			t.Errorf("the lock runs for %v", ttl)
		}
		c.Expect(fmt.Sprintf("RELOCK job %d 0.05", token), ":1\r\n")
		c.Expect(fmt.Sprintf("RELOCK job %d 5", token+1), ":0\r\n")
		time.Sleep(60 * time.Millisecond)
		c.Expect(fmt.Sprintf("RELOCK job %d 5", token), ":0\r\n")
		c.Expect("EXISTS job", ":0\r\n")
	})
}

// UNLOCK is refused during a renewal of the lock. Another renewal begins at once then; the two must
// not disturb each other.
func TestRefusedUnlockDuringARenewal(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, server)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		client := proxytest.Dial(t, p.Addr)
		token := client.Lock("job 1.2 SESSION") // it is renewed after 400 ms, and then every 400 ms
		for range 3 {
			time.Sleep(350 * time.Millisecond)
			link.Set(badlink.State{Latency: 200 * time.Millisecond})
			time.Sleep(100 * time.Millisecond) // a renewal is on its way, and slow
			link.Set(badlink.State{})
			server.Refuse("NOPERM it may not", "EVAL", "EVALSHA")
			if got := client.Do(proxytest.Unlock("job", token)); !strings.HasPrefix(got, "-NOPERM") {
				t.Fatalf("UNLOCK without the right to: %q", got)
			}
			server.Answer(nil, "EVAL", "EVALSHA")
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Second)
		client.Expect(proxytest.Unlock("job", token), ":1\r\n")
	})
}
