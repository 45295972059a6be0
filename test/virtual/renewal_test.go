//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/virtualtest"
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
