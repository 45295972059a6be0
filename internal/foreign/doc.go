// Package foreign knows the locks of clients that do not know LOCK, by their commands alone.
//
// Read says what a request means for such a lock: it takes it (SET key value NX PX ms, SETNX, or a
// script), extends it, or releases it. Scripts of libraries are listed by their hash (known).
// Outcome says what the reply to such a request means.
//
// Locks has the locks that were seen to be taken, their holders, and the clients that were refused,
// and tells the journal of them. The upstream decides, and clients that do not
// use this proxy are not seen.
//
// The package does no I/O. Any goroutine can use Locks and Read. Memory is bounded:
// maxLocks, maxKey, maxTries.
package foreign
