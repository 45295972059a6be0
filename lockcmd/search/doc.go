// Package search finds deadlocks: owners that wait for each other's locks, at all proxies.
//
// Deadlocks is the door. Watch searches from a wait as long as it lasts; a wait that closes a
// deadlock is refused (queue.Wait.Refuse) with a deadlock.Error. Channels are those on which
// proxies ask each other who waits where, and OnMessage takes what comes by them. Found are the
// last deadlocks, for people. What follows from what is known, package deadlock says, which asks
// nobody.
//
// Anybody may write on the channels, and read them. So owners are asked for by hashes, and whatever
// else has a name is sealed with a key of the login whose wait it is about (seal). An answer is a
// claim, which counts only if the records of the locks confirm it (holders).
//
// The files know those before them: asked, seal, deadlocks, holders, wait, channels, messages,
// follow, search.
package search
