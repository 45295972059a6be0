package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// longWord makes a round large.
var longWord = strings.Repeat("x", 4000)

func echoed(i int) string { return fmt.Sprintf("%08d%s", i, longWord) }

// The unread replies of a client are bounded by --max-unread:
// beyond, it is closed, and the log says so.
func TestPipelineUnreadIsBounded(t *testing.T) {
	server := testredis.Start(t)
	for _, dedicated := range []bool{false, true} {
		var log testredis.LogBuffer
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
			cfg.Dedicated, cfg.MaxUnread = dedicated, 1<<20
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
		})
		c := proxytest.Dial(t, p.Addr)
		c.Expect("PING", "+PONG\r\n")
		go func() { // ends when the proxy closes, or the test
			for i := 0; ; i++ { // the kernel's buffers take megabytes first
				var raw []byte
				for _, command := range append(slices.Repeat([]string{"ECHO " + echoed(i)}, 100),
					"LOCK a 600") {
					raw = wire.Append(raw, strings.Split(command, " ")...)
				}
				if _, err := c.Write(raw); err != nil {
					return
				}
			}
		}()
		testwait.Until(t, "it is closed, and the log says so", func() bool {
			return strings.Contains(log.String(),
				"a client was disconnected: it left too many replies unread: client=127.0.0.1:") &&
				p.Server.Stats().Clients == 0
		})
		c.Close()
	}
}
