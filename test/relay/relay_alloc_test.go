package relay_test

import (
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// relayPerTurn is how many requests a turn of relayTurn sends at once.
const relayPerTurn = 16

// relayTurn returns a function that sends requests and reads
// all replies, without allocating anything itself.
func relayTurn(t testing.TB) func() {
	server := testredis.StartBy(t, testredis.TCP) // TLS allocates
	p := proxytest.Start(t, server.URL(), nil)
	loopguard.Off()
	t.Cleanup(loopguard.On)
	c := proxytest.Dial(t, p.Addr)
	c.Expect("SET k value", "+OK\r\n")
	c.SetReadDeadline(testwait.Deadline())
	requests := []byte(strings.Repeat("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", relayPerTurn/2) +
		strings.Repeat("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n", relayPerTurn/2))
	replies := make([]byte, relayPerTurn/2*(len("$5\r\nvalue\r\n")+len("+OK\r\n")))
	return func() {
		if _, err := c.Write(requests); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c.In, replies); err != nil {
			t.Fatal(err)
		}
	}
}

// A relayed command allocates nothing, in either direction. Allocations of the runtime, in any
// goroutine, are counted too.
func TestRelayAllocatesNothing(t *testing.T) {
	turn := relayTurn(t)
	for range 100 {
		turn()
	}
	const turns = 500
	least := math.Inf(1)
	for range 5 { // something else in the process may allocate
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range turns {
			turn()
		}
		runtime.ReadMemStats(&after)
		per := float64(after.Mallocs-before.Mallocs) / (turns * relayPerTurn)
		least = min(least, per)
	}
	if least > 0.05 {
		t.Errorf("%.3f allocations a command, want none", least)
	}
}

func BenchmarkRelay(b *testing.B) {
	turn := relayTurn(b)
	b.ReportAllocs()
	for b.Loop() {
		turn()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/relayPerTurn, "ns/command")
}
