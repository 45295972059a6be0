package upstream

import (
	"strings"
	"testing"
)

// A reply that announces more than there is room for is an error, of the line or of its length. It
// is no panic.
func TestClientBoundsReplies(t *testing.T) {
	for _, reply := range []string{
		"+" + strings.Repeat("x", maxLine+1),
		"$2305843009213693951\r\n",
		"*2305843009213693951\r\n",
		strings.Repeat("*1048576\r\n", 100),
	} {
		const unknown = "-ERR unknown command\r\n"
		u := &Upstream{Network: "tcp", Addr: answering(t, round{2, unknown + unknown},
			round{1, unknown + reply})}
		client := u.Client(Identity{})
		if got, err := client.Do(t.Context(), "PING").Result(); err == nil ||
			!strings.Contains(err.Error(), " than ") {
			t.Errorf("%.40q: %v, %v", reply, got, err)
		}
		client.Close()
	}
}
