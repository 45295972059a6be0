package real_test

import (
	"io"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// Redis answers nothing to a client that closes its side while a request blocks. Then a lock command
// behind that is not answered either: its reply would be taken for the other's.
func TestHalfClosedBehindABlockingRequest(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	holder := proxytest.Dial(t, p.Addr)
	holder.Lock("k 600")
	for _, lock := range []string{
		"LOCK k 600 WAIT 60", "LOCK k 600", "LOCKALL 600 2 k l WAIT 60", "ONCE m 600 WAIT 60",
	} {
		t.Run(lock, func(t *testing.T) {
			c := proxytest.Dial(t, p.Addr)
			c.Send("BLPOP none 600", lock, "ECHO a")
			testwait.Until(t, "BLPOP blocks", func() bool { return blockedIn(server, "blpop") != "" })
			c.CloseWrite()
			if got, err := c.TryReply(); err != io.EOF {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
