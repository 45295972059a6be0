package real_test

import (
	"fmt"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/wire"
)

// A session lock with MAX is lost once it has been held for so long, though its connection is open
// and its timeout far off: its client is told, and a waiter has the lock.
func TestSessionMax(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	for proto, mode := range map[int]string{2: "", 3: "SHARED "} {
		holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		key := fmt.Sprintf("job:%d", proto)
		holder.Do(fmt.Sprintf("HELLO %d", proto))
		token := holder.Lock(fmt.Sprintf("%s 600 %sSESSION MAX 0.3 OWNER o", key, mode))
		waiter.Send("LOCK " + key + " 600 WAIT 0")
		if proto == 3 {
			holder.WantReply(fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n%s:%d\r\n",
				wire.Bulk(key), token))
		}
		holder.Closed()
		if next := proxytest.Token(t, waiter.Reply()); next <= token {
			t.Errorf("token %d follows %d", next, token)
		}
	}
}
