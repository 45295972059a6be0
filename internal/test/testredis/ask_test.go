package testredis_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// What a paused or killed server is asked comes back at once, also if it was asked before.
func TestAskADownServer(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name  string
		down  func(*testredis.Server)
		again func(*testredis.Server)
	}{
		{"paused", (*testredis.Server).Pause, (*testredis.Server).Resume},
		{"killed", (*testredis.Server).Kill, (*testredis.Server).Restart},
	} {
		t.Run(fault.name, func(t *testing.T) {
			s := testredis.Start(t)
			answer := make(chan string, 1)
			go func() { answer <- s.Ask("BLPOP", "list", "0") }()
			testwait.Until(t, "BLPOP waits", func() bool {
				return strings.Contains(s.Ask("INFO", "clients"), "blocked_clients:1")
			})
			fault.down(s)
			if got := testwait.For(t, "an answer to BLPOP", answer) + s.Ask("PING"); got != "" {
				t.Errorf("a server that is %s answers %q", fault.name, got)
			}
			fault.again(s)
			if got := s.Ask("PING"); got != "+PONG" {
				t.Errorf("a server that was %s answers %q", fault.name, got)
			}
		})
	}
}
