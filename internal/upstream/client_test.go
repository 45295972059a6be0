package upstream

import (
	"fmt"
	"io"
	"net"
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

// A reply may announce as much as there is room for.
func TestClientTakesTheLargestReply(t *testing.T) {
	end := len("\r\n") // which is still to come, too
	for size, fits := range map[int]bool{maxReply - end: true, maxReply - end + 1: false} {
		here, there := net.Pipe()
		go func() { // ends with the pipe
			io.WriteString(there, fmt.Sprintf("$%d\r\n", size))
			there.Close()
		}()
		_, err := io.ReadAll(&ownConn{Conn: here})
		if (err == nil) != fits {
			t.Errorf("%d bytes: %v", size, err)
		}
		here.Close()
	}
}
