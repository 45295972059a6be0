//go:build linux

// Package check judges histories of a lock service: the operations and replies of its clients must
// agree with its promises.
//
// The package knows no more than the clients. A client can rely on its lock from reading the token
// until it begins to release the lock, and at most for the timeout since it sent LOCK. The rules:
//
//   - exclusion: the times of two holders of a lock don't overlap, unless both share it
//   - limit: no client that asked for up to n holders is one of more than n
//   - tokens: a client that asks after another has got the lock gets a greater token; no token
//     occurs twice
//   - stale: a command is refused if a greater token was given before it was sent
//   - lost: no client is told that its lock is gone while it can rely on the lock
//   - fifo: at one proxy, a waiter that came well before another is served before it
//   - fence: a lock's register is linearizable, and only holders write it (by porcupine)
//   - order: no fenced write is accepted after one with a greater token, unless they share the lock
//   - idle: no lock stays without a holder for long while a client waits for it
//   - late: a client that waits for a free lock gets it within the promised time
//   - turns: proxies take turns: no waiter is passed over many times for later ones elsewhere
//   - share: no proxy, however far away, has less than half of its share of a lock that clients of
//     several proxies wait for
//   - overtaken: no LOCK without WAIT gets a lock for which a client waits
//   - owner: an owner gets its lock again, with the same token, on each of its connections
//   - all: UNLOCKALL releases both of two locks, or none
//   - answer: every command gets its answer and no other command's
//   - writes: an acknowledged write happens once, any other at most once, and all are in order
//   - deadlock: an owner is told of a deadlock only if that cycle existed, and no owners wait for
//     each other for long
//   - unblocked: CLIENT UNBLOCK answers 1 and ends the wait in the requested way, or answers 0; it
//     ends the wait of every client that waits
//   - login: a right login is never refused, and a removed password never accepted
//   - service: when all faults are over, every lock can be acquired
//
// An owner's session lock lasts until the last of its connections ends.
//
// A place (LOCK … PLACE) is a waiter from its client's first question to its last. Others may be kept
// waiting for it from then until it is over. A RELOCK … EXCLUSIVE that is answered with a token is a
// release and a LOCK at the same time.
//
// The rules measure time in beats: pings of a client that does nothing else, each of which counts
// as the time of a ping on a fast machine. So a slow machine breaks no rule. Errors break none
// either if they say that the command was not run, such as BUSY.
//
// A fault that ends a promise (history.Breaks) excuses only violations of that promise: see
// docs/guarantees.md.
package check
