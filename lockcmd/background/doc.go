// Package background runs work that no client's connection does: jobs at their times, and scripts
// on the proxy's own connections.
//
// Timers run each job in a goroutine of its own, until Close. Clients keeps a client of the upstream
// for each identity, and in a cluster for each part of the slots. On returns where scripts on a lock
// run as an identity. Scripts that are due at the same time go to the upstream together (batch.go).
//
// Ways remembers how far the upstream is: the shortest of the last round trips of scripts.
//
// The files know those before them: timers, ways, batch, clients.
package background
