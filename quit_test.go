package lockproxy_test

import (
	"io"
	"testing"

	"lockproxy/internal/testredis"
)

// The answer to QUIT comes before the end of the connection, however the two goroutines of a session are scheduled.
func TestQuitIsAlwaysAnswered(t *testing.T) {
	p := startProxy(t, testredis.Start(t).URL(), nil)
	for range 2000 {
		c := dial(t, p.addr)
		c.send("PING", "QUIT")
		if got, err := io.ReadAll(c.in); string(got) != "+PONG\r\n+OK\r\n" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		c.Close()
	}
}
