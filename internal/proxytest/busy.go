package proxytest

import (
	"sync"
	"testing"
	"time"
)

// Busy is by how much the machine delays what tests measure. A bound of a test that a quiet machine
// keeps is given that much more.
type Busy struct {
	mu      sync.Mutex
	longest time.Duration // guarded by mu; since the last Reset
	due     time.Time     // guarded by mu; of the PING under way; zero for none
}

// busyEvery is how often Busy measures.
const busyEvery = 5 * time.Millisecond

// WatchBusy begins to measure, until the test ends, how long after its time a PING of the server at
// addr is answered.
func WatchBusy(t testing.TB, addr string) *Busy {
	t.Helper()
	b, c := &Busy{}, Dial(t, addr)
	stop, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); c.Close(); <-ended })
	go func() { // ends with the test
		defer close(ended)
		for b.ping(c) {
			select {
			case <-stop:
				return
			case <-time.After(busyEvery):
			}
		}
	}()
	return b
}

// ping measures once. It returns false if the connection has ended.
func (b *Busy) ping(c *Conn) bool {
	b.mu.Lock()
	b.due = time.Now()
	b.mu.Unlock()
	_, err := c.Write([]byte("PING\r\n"))
	if err == nil {
		_, err = c.In.ReadSlice('\n')
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.longest = max(b.longest, time.Since(b.due))
	b.due = time.Time{}
	return err == nil
}

// Reset forgets earlier delays.
func (b *Busy) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.longest = 0
}

// Longest is the longest delay since Reset.
func (b *Busy) Longest() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due.IsZero() {
		return b.longest
	}
	return max(b.longest, time.Since(b.due))
}
