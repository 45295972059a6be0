// Package held knows which locks connections were given, and renews session locks.
//
// A Lock is all that this proxy knows about a lock that a connection was given. The Holder, which
// is that connection, and the Registry of all locks share it. Neither decides anything: the
// upstream does.
//
// Renewals is the door for commands: Hold records a lock that was acquired, Unlocked and Relocked
// what has become of it. A session lock is renewed from then on, each time after a third of its
// timeout, until its connection ends or loses it.
//
// Sessions finds session locks that are lost while their connections are open. VerifySessions asks
// the upstream, when something was seen that may have ended one, and a renewal finds the rest. The
// client is told (Holder.LockLost), and with it the other connections of the lock's owner.
//
// A token that the client may not have read is undelivered (Holder.MarkSent, MarkDelivered,
// MarkUnread). When a connection ends, Holder.Leave takes what it can no longer have: the caller
// releases that.
//
// The files know those before them: lock, expiry, registry, holder, loss, renew. Only a Lock points
// back to its Holder, and that to its Sessions.
package held
