//go:build !race

package held

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/monotonic"
)

// Locks that nobody releases take bounded memory, and are swept as others come.
func TestRegistryIsBounded(t *testing.T) {
	r, expired := testRegistry()
	now := monotonic.Now()
	for i := range 3 * registryShards * maxRegistered {
		r.Put(taken(fmt.Sprint(i), "c", int64(i), now, time.Hour))
	}
	const most = registryShards * maxRegistered
	if left := r.Sweep(now); left > most || left < most/2 {
		t.Errorf("%d locks are registered", left)
	}
	later := now + int64(2*time.Hour)
	for i := range registryShards * maxRegistered {
		r.Put(taken("other"+fmt.Sprint(i), "c", int64(i), later, time.Hour))
	}
	if expired.Load() == 0 {
		t.Error("nothing has been swept without being asked for")
	}
}

// Sessions are registered even if other locks fill the registry: they must be found.
func TestSessionsAreAlwaysRegistered(t *testing.T) {
	r, _ := testRegistry()
	now := monotonic.Now()
	for i := range 2 * registryShards * maxRegistered {
		r.Put(taken(fmt.Sprint(i), "c", int64(i), now, time.Hour))
	}
	lock := taken("job", "c", 7, now, time.Minute)
	lock.by = &Holder{}
	r.Put(lock)
	if len(r.sessionsOf(lock.ID())) != 1 {
		t.Error("a session's lock is not found")
	}
}
