// Package hints receives notifications: a lock may be free, or a session lock may be lost. A poll
// or a renewal would find that later. Nothing depends on it; a hint that is lost costs time.
//
// Listener is the door, and tells the queues and held.Sessions. Listen has it hear other proxies,
// as long as anybody waits or has a session lock. Messages are claims: each costs a look at a lock
// that this proxy knows anyway. Want asks the upstream to report the next change of a lock's key,
// by any client, and Follows says whether it will.
//
// Each login and database that needs it has one connection (conn.go). One of them, the subscriber,
// hears other proxies for all (channels.go); in a cluster who waits there is heard apart.
package hints
