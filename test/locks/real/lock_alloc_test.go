package real_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
)

// lockTurn returns a function that takes that many locks at once, and then releases them, without
// allocating anything itself.
func lockTurn(t testing.TB, together int) func() {
	_, p := proxytest.StartBoth(t)
	c := proxytest.SharedClient(t, p.Addr)
	c.SetReadDeadline(time.Time{})
	var lock, unlock []byte
	for i := range together {
		lock = fmt.Appendf(lock, "*3\r\n$4\r\nLOCK\r\n$3\r\nk%02d\r\n$2\r\n30\r\n", i)
		unlock = fmt.Appendf(unlock, "*2\r\n$6\r\nUNLOCK\r\n$3\r\nk%02d\r\n", i)
	}
	replies := make([]byte, together*len(":1234567890123456\r\n"))
	ask := func(requests []byte, length int) {
		if _, err := c.Write(requests); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c.In, replies[:length]); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		ask(lock, len(replies))
		ask(unlock, together*len(":1\r\n"))
	}
}

func BenchmarkLock(b *testing.B) {
	for _, together := range []int{1, 16} {
		b.Run(fmt.Sprint(together), func(b *testing.B) {
			turn := lockTurn(b, together)
			b.ReportAllocs()
			for b.Loop() {
				turn()
			}
			commands := float64(b.N) * float64(2*together)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/commands, "ns/command")
		})
	}
}
