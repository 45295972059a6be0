package locks_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// UNLOCK is refused during a renewal of the lock. Another renewal begins at once then; the two must
// not disturb each other.
func TestRefusedUnlockDuringARenewal(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := proxytest.LinkTo(t, server)
	p := proxytest.Start(t, "redis://"+link.Addr(), nil)
	admin, client := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, p.Addr)
	token := client.Lock("job 1.2 SESSION") // it is renewed after 400 ms, and then every 400 ms
	for range 3 {
		time.Sleep(350 * time.Millisecond)
		link.Set(relay.Link{Latency: 200 * time.Millisecond})
		time.Sleep(100 * time.Millisecond) // a renewal is on its way, and slow
		link.Set(relay.Link{})
		admin.Expect("ACL SETUSER default -eval -evalsha", "+OK\r\n")
		if got := client.Do(proxytest.Unlock("job", token)); !strings.HasPrefix(got, "-NOPERM") {
			t.Fatalf("UNLOCK without the right to: %q", got)
		}
		admin.Expect("ACL SETUSER default +@all", "+OK\r\n")
		time.Sleep(300 * time.Millisecond)
	}
	time.Sleep(time.Second)
	client.Expect(proxytest.Unlock("job", token), ":1\r\n")
}
