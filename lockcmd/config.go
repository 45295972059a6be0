package lockcmd

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
)

// Config has an operator's decisions about locks.
type Config struct {
	MaxTimeout     time.Duration // longest timeout that LOCK accepts
	FenceRetention time.Duration // how long a lock's last token is remembered after its end
	Seconds        bool          // write timestamps in seconds, rounded up, instead of ms
	Moves          bool          // another server may replace the upstream: waiters wait for it
	Cluster        bool          // the upstream is a Redis Cluster: locks on many servers
	Durability
	// History is how many bytes of memory the history of locks may take.
	History  int64
	Deadlock string        // search.Refuse, search.Log or search.Off
	SlowWait time.Duration // log a client that has waited this long for a lock; 0 logs none
	Observer Observer      // nil is none
	// InUse is an identity with the password that is in use, if it is the proxy's own, which can
	// change. nil changes none.
	InUse func(names.Identity) names.Identity
	// CanFence reports whether a command may run in a transaction that the proxy begins.
	CanFence func(command [][]byte) bool
}

// Observer measures locks. Many goroutines call it, and it must not block.
type Observer interface {
	// LockWaited is called when a LOCK … WAIT has ended, with the lock or without.
	LockWaited(d time.Duration, acquired bool)
	// LockHeld is called for a lock that was taken and released through this proxy.
	LockHeld(d time.Duration)
}

type noObserver struct{}

func (noObserver) LockWaited(time.Duration, bool) {}
func (noObserver) LockHeld(time.Duration)         {}

// Durability has an operator's demands where the upstream can lose writes in a failover. The zero
// value demands nothing.
type Durability struct {
	MinReplicas    int           // replicas that must have a lock before its token is given out
	RequireFsync   bool          // the upstream and they must have it on disk before that
	ReplicaTimeout time.Duration // how long that may take; more than 0 with either of them
	TakeoverGuard  time.Duration // how long after its expiry a lock can be taken over
	FailoverHold   time.Duration // how long after a failover no lock is given out
}

// common is what all parts of Locks have.
type common struct {
	*background.Jobs
	cfg     Config
	holdOff atomic.Int64 // its end, as monotonic.Now; 0 if there was none
}
