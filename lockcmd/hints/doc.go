// Package hints receives notifications: a lock may be free, or a session lock may be lost. A poll
// or a renewal would find that later. Nothing depends on it; a hint that is lost costs time.
//
// Notifications hears other proxies: Listen subscribes as one of the clients' users, as long as
// anybody waits or has a session lock. Messages are claims: each costs a look at a lock that this
// proxy knows anyway. Tracking hears of changes of a lock's key, by any client: Want asks
// the upstream to report the next one, and Follows says whether it will. Both tell the queues and
// held.Sessions.
package hints
