// Package foreign knows the locks of clients that do not know LOCK, by their commands alone.
//
// Read says what a request means for such a lock: it takes it (SET key value NX PX ms, SETNX, or a
// script), extends it, or releases it. Scripts are known by their Shape: which commands they call,
// and how. So a script need not be listed; Shapes remembers it by its hash.
// Outcome says what the reply to such a request means.
//
// Locks has the locks that were seen to be taken, their holders, and the clients that were refused.
// It decides nothing: the upstream does, and clients that do not use this proxy are not seen.
//
// The package does no I/O. Locks and Shapes can be used by any goroutine; the rest is pure.
// Memory is bounded: maxLocks, maxKey, maxTries, maxShapes.
package foreign
