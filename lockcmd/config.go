package lockcmd

import (
	"time"
)

// Config is what an operator decides about locks.
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
	// CanFence reports whether a command may run in a transaction that the proxy begins.
	CanFence func(command [][]byte) bool
}
