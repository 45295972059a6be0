//go:build !race

package virtual_test

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

var tokenReply = regexp.MustCompile(`:\d{16}\r\n`)

// farAway starts a proxy of a Redis that is that far away,
// each way, and knows the scripts, and a client of it.
func farAway(t *testing.T, latency time.Duration) (*proxytest.Proxy, *proxytest.Conn) {
	t.Helper()
	link := proxytest.LinkTo(t, virtualtest.StartStore(t))
	p := proxytest.Start(t, "redis://"+link.Addr(), nil)
	c := proxytest.SharedClient(t, p.Addr)
	c.Lock("first 30")
	link.Set(badlink.State{Latency: latency})
	return p, c
}

// One client's lock commands go to the upstream together and cost one round trip.
func TestLockBatchTakesOneRoundTrip(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, c := farAway(t, 20*time.Millisecond)
		const locks = 50
		var pipeline []string
		for i := range locks {
			pipeline = append(pipeline, fmt.Sprintf("LOCK k%d 30", i))
		}
		start := time.Now()
		c.Send(pipeline...)
		for i := range locks {
			if got := c.Reply(); !tokenReply.MatchString(got) {
				t.Fatalf("lock %d: %q", i, got)
			}
		}
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("%d locks took %v, of which each way to the upstream and back takes 40 ms", locks,
				took)
		}
	})
}

// An upstream that has forgotten the scripts still runs each command, in order.
func TestLockBatchWithoutScripts(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for _, conf := range []func(*proxy.Config){nil, func(cfg *proxy.Config) {
			cfg.Dedicated = true
		}, func(cfg *proxy.Config) { cfg.Locks.Seconds = true }} {
			server := virtualtest.StartStore(t)
			p := proxytest.Start(t, server.URL(), conf)
			admin := proxytest.Dial(t, server.Addr())
			c := proxytest.SharedClient(t, p.Addr)
			for round := range 5 {
				admin.Expect("SCRIPT FLUSH", "+OK\r\n")
				c.Send("LOCK a 30", "LOCK b 30", "UNLOCK a", "UNLOCK b", "LOCK a 30", "LOCK a 30",
					"PING", "UNLOCK a", "UNLOCK a")
				for i, want := range []string{":1…", ":1…", ":1\r\n", ":1\r\n", ":1…", "$-1\r\n",
					"+PONG\r\n", ":1\r\n", ":0\r\n"} {
					got := c.Reply()
					if prefix, cut := strings.CutSuffix(want, "…"); got != want &&
						(!cut || !strings.HasPrefix(got, prefix) || len(got) != 19) {
						t.Fatalf("round %d, reply %d: %q, want %q", round, i, got, want)
					}
				}
			}
		}
	})
}

// From a client that sends far more lock commands than have been answered, the proxy reads no more
// than it can serve.
func TestLockBatchIsBounded(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		p, c := farAway(t, 10*time.Millisecond)
		go io.Copy(io.Discard, c.Conn) // ends with c
		const size = 31
		chunk := []byte(strings.Repeat("*3\r\n$4\r\nLOCK\r\n$1\r\na\r\n$2\r\n30\r\n", 1000))
		c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		for {
			if _, err := c.Write(chunk); err != nil {
				break
			}
		}
		st := p.Server.Stats()
		var commands uint64
		for _, n := range st.Commands {
			commands += n
		}
		if commands < 20 || st.BytesIn > commands*size+512<<10 {
			t.Errorf("%d bytes were read of %d unanswered commands", st.BytesIn, commands)
		}
	})
}

// A client that no event loop reads, as with TLS, sends a second lock command while its first one is
// under way. It is asked at once, and not when the first one has been answered.
func TestLockIsAskedWhileAnotherIsInAGoroutine(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		const latency = 20 * time.Millisecond
		_, c := farAway(t, latency)
		start := time.Now()
		c.Send("LOCK a 30")
		time.Sleep(latency) // the proxy waits for Redis by now
		c.Send("LOCK b 30")
		for range 2 {
			proxytest.Token(t, c.Reply())
		}
		if took := time.Since(start); took != 3*latency {
			t.Errorf("it took %v, and %v is one way to Redis", took, latency)
		}
	})
}
