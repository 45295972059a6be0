// Package hints hears early what a poll or a renewal would find late: that a lock may be free, or
// that a session may have lost one. Nothing depends on it; a hint that is lost costs time.
//
// Notifications hears other proxies: Listen subscribes as a client's user, as long as anybody waits
// or has a session lock. Tracking hears of changes of a lock's key, by any client: Want asks
// the upstream to report the next one, and Follows says whether it will. Both tell the queues and
// held.Sessions.
package hints
