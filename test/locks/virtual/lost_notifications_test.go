//go:build !race

package virtual_test

import (
	"slices"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A lock that is reserved for a proxy whose only waiter has left is returned at once, not at the
// end of the reservation.
func TestReservationOfAWaiterThatHasLeft(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		p, other := proxytest.Start(t, server.URL(), nil), proxytest.Start(t, server.URL(), nil)
		holder, next, leaves := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, other.Addr)
		var times []time.Duration
		for range 9 {
			holder.Lock("job 30")
			leaves.Expect("LOCK job 30 WAIT 0.005", "$-1\r\n")
			next.Send("LOCK job 30 WAIT 5")
			proxytest.AwaitWaiters(t, p, "job", 1)
			time.Sleep(20 * time.Millisecond) // the other proxy subscribes
			began := time.Now()
			holder.Send("UNLOCK job")
			if got := next.Reply(); got[0] != ':' {
				t.Fatal(got)
			}
			times = append(times, time.Since(began))
			next.Expect("UNLOCK job", ":1\r\n")
			holder.Reply()
		}
		slices.Sort(times)
		t.Log(times)
		if median := times[len(times)/2]; median > 50*time.Millisecond {
			t.Errorf("the next client at the proxy of the release had the lock after %v", times)
		}
	})
}
