//go:build linux

package relay

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Pieces travel at the same time: each arrives a delay after it was sent.
func TestPiecesTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		const away, gap = 200 * time.Millisecond, 20 * time.Millisecond
		began := time.Now()
		go func() { // ends when all has arrived
			defer near.Close()
			w := &way{to: near}
			for i := range 10 {
				w.write([]byte{byte(i)}, away)
				time.Sleep(gap)
			}
			w.end()
		}()
		for i := range 10 {
			b := make([]byte, 2)
			n, err := far.Read(b)
			if n != 1 || b[0] != byte(i) || err != nil {
				t.Fatalf("piece %d: %v, %v", i, b[:n], err)
			}
			if got, want := time.Since(began), time.Duration(i)*gap+away; got != want {
				t.Errorf("piece %d arrives after %v, want %v", i, got, want)
			}
		}
	})
}
