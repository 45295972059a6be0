package badlink

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Pieces travel at the same time: those that are sent together arrive together.
func TestPiecesTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		const away = 200 * time.Millisecond
		began := time.Now()
		go func() { // ends when all has arrived
			defer near.Close()
			w := &way{to: near}
			for i := range 10 {
				w.write([]byte{byte(i)}, away)
			}
			w.end()
		}()
		for i := range 10 {
			b := make([]byte, 2)
			n, err := far.Read(b)
			if n != 1 || b[0] != byte(i) || err != nil {
				t.Fatalf("piece %d: %v, %v", i, b[:n], err)
			}
			if got := time.Since(began); got != away {
				t.Errorf("piece %d arrives after %v, want %v", i, got, away)
			}
		}
	})
}
