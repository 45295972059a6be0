//go:build linux

// Package check judges histories of a lock service: whether
// what clients saw can be what was promised.
//
// It knows no more than the clients did. A client can rely on its lock from the moment it has read
// the token until it begins to release it, and for no longer than the timeout counted from before
// it asked. The rules:
//
//   - exclusion: the times of two holders of a lock don't overlap, unless both share it
//   - limit: nobody who asked for up to n holders is one of more than n
//   - tokens: a client that asks after another was given the lock gets a greater token; no token is
//     given twice
//   - stale: a command is refused if its token is smaller than one given before it was sent
//   - lost: no client is told that its lock is gone during the time in which it can rely on it
//   - fifo: at one proxy, a waiter that came well before another is served before it
//   - fence: a lock's register is linearizable, and only holders write it (by porcupine)
//   - order: no fenced write is accepted after one with a greater token, unless they share the lock
//   - idle: no lock stays unheld for long while a client waits for it, as if given to a dead client
//   - late: a free lock that a client waits for is given within the promised time
//   - turns: proxies take turns: no waiter is passed over many times for later ones elsewhere
//   - share: no proxy, however far away, has less than half of its share of a lock that clients of
//     several proxies wait for
//   - overtaken: no LOCK without WAIT is given a lock for which somebody waits
//   - owner: an owner is given its lock again, with the same token, by each of its connections
//   - all: UNLOCKALL releases both of two locks, or none
//   - answer: every command gets its answer and no other command's
//   - writes: an acknowledged write is there once, any other at most once, and they are in order
//   - deadlock: an owner is told of a deadlock only if there was that cycle, and no owners wait for
//     each other for long
//   - unblocked: CLIENT UNBLOCK answers 1 and ends the wait, as it was asked to, or answers 0; a
//     client that waits is unblocked
//   - login: no client is refused whose login is right, nor let in by a password that was removed
//   - service: when all faults are over, every lock can be acquired
//
// An owner's session lock lasts until the last of its connections ends.
//
// What must not take long is counted in beats: pings of a client that does nothing else, each of
// which stands for as long as it takes where nothing is slow. So no rule objects to what a slow
// machine causes, nor to errors that say that the command was not done, such as BUSY.
//
// A fault that ends a promise (history.Breaks) excuses only what it is about; see
// docs/guarantees.md.
package check
