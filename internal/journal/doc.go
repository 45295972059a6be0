// Package journal remembers what happened to locks during the last hour: events, and what each lock
// has cost its waiters.
//
// It is pure: it does no I/O, and callers tell the time, as monotonic.Now does. Any goroutine can
// report an event to a Journal. These calls do not block, and allocate nothing for a lock that is
// known. A nil Journal remembers nothing.
//
// # Blame
//
// A holder's blame is the time that others have waited while it held the lock. The blame of all
// holders of a lock adds up to all waits for it, including those that go on. The sum is kept as time
// passes: when the holder or the number of waiters changes, the Journal adds the time since the last
// change to the holder's blame, once for each waiter.
//
// # Memory
//
// Half of the memory is for events; the oldest goes first. The other half is for locks; the longest
// unused one goes first, if possible one that nobody waited for. A lock's numbers are kept by the
// minute.
package journal
