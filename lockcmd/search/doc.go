// Package search finds deadlocks: owners that wait for each other's locks, at all proxies.
//
// Deadlocks is the door. Watch searches from a wait as long as it lasts; a wait that closes a
// deadlock is refused (queue.Wait.Refuse) with a deadlock.Error. Channels are those on which
// proxies tell each other who waits where, and OnMessage takes what comes by them. Found are the
// last deadlocks, for people. Package deadlock, which asks nobody, decides what follows from these
// waits.
//
// Anybody may write on the channels, and read them. So whatever is told is sealed with a key of the
// login whose waits it is about (seal). It is a claim: who has the locks of such a wait, and whether
// its proxy has waiters, the records of the locks say (follow).
//
// The files know those before them: seal, told, deadlocks, records, channels, messages, follow,
// search.
package search
