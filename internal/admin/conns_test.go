package admin_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	"lockproxy/internal/admin"
	"lockproxy/internal/test/testwait"
)

// However many connections somebody opens, and keeps, the admin server has few of them, and serves
// the next one.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	const opened, most = 200, admin.MaxConns
	var list []net.Conn
	for range opened {
		nc, err := net.Dial("tcp", s.url[len("http://"):])
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.SetDeadline(testwait.Deadline())
		io.WriteString(nc, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		reply, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || reply.StatusCode != http.StatusOK {
			t.Fatalf("a new connection is not served: %v", err)
		}
		list = append(list, nc)
	}
	for i, nc := range list[:opened-most] {
		if _, err := io.ReadAll(nc); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is kept", i)
		}
	}
}
