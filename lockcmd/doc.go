// Package lockcmd implements the lock commands: what they accept, do upstream, and answer.
//
// A lock is a timestamp lock. Its key holds the time at which the lock expires, as programs with
// SETNX recipes have always written it: so these foreign clients and LOCK exclude each other.
// A second key, the lock record, holds the token, the owner and the times. Each step is one Lua
// script, atomic, by the upstream's clock alone: see package script, and read.lua there for the two
// keys. Package internal/test/model tries the scripts and the proxies in every order.
//
// # A command
//
// Package syntax lists the commands as Specs. Locks.Begin parses a request and returns its first
// Step, which asks for a Script, Commands, a Pause or a Turn; Step.Finish turns the Answer into a
// Reply, or into the next Step.
// Nothing in a Step can wait, so an event loop drives it as well as a goroutine. And the proxy can
// send the scripts of several requests together, also of several clients: then batch.lua runs them.
// LOCK … WAIT, LOCKALL … WAIT, and ONCE … WAIT if there is no value, are a turn, which alternates
// between sleep (Turn) and steps that ask: see wait.go.
//
// Scripts of a client's commands run on its own connection: as its user, in its database, in its
// order. Work for a connection that is busy or gone (renewals, releases of
// abandoned locks, repairs of timestamps) runs on background clients, logged in as the same user.
//
// A LOCK … WAIT begins when what its client sent before has been answered, and joins the queue of
// its lock (package queue). Only the first waiter polls, by a connection of the proxy's own if the
// client's is silent (own.go). A release, in the same script, hands the lock over to the first waiter
// of this proxy, or reserves it for one of another proxy, which it notifies by pub/sub. If foreign
// clients compete, it leaves the lock free for all.
//
// # Parts
//
// Locks is put together from parts with one job each. A part knows only those before it:
//
//	common                what all parts have: Config, and package background
//	queue.Queues          clients that wait here, by the lock, and competing foreign clients
//	observed              what has happened to locks: counters, journal, registry
//	held.Sessions         finds session locks that are lost
//	traffic               learns about locks from the commands of foreign clients
//	releases              frees locks, also abandoned ones, and hands them over
//	search.Deadlocks      finds owners that wait for each other, with other proxies
//	hints.Listener        hears other proxies, and from the upstream that keys have changed
//	held.Renewals         records the locks of connections, and renews session locks
//	graces                repairs locks after takeovers
//	locking, waits        take locks, at once or after others
//	places                are kept in lines for clients that do not wait
//	queries               tells users and operators about locks
//
// The files are in this order, and know those before them: config, durability, reply, step;
// observe, history, traffic, delay; unlock_call, observe_release, unlock, abandoned, offers; stats,
// info, digit_names, grace, lock, unlockall; slow, wait, own, claim, poll, changed, place, relock,
// lockall, once, fence; survey, seen_commands, scan; locks. Observe also knows the Counters of
// stats. Unlock and offers know each other, and so do the three of a turn: wait, own and claim.
//
// # Shared locks, several locks
//
// A shared lock's record is a sorted set of its holders (read.lua). A release, and the poll of the
// first waiter, offers it to the waiters at the head of the queue together, in one script. The fast
// paths of exclusive locks do not know it. LOCKALL is a waiter in several queues
// (lockall.go), and asks for all its locks in one script (all.lua) when it is first in each.
//
// # Values that are made once
//
// ONCE reads a value, and if there is none takes the claim to make it: a lock at a key next to the
// value's. DONE stores the value and frees the claim (once.go).
//
// # What is known about a lock
//
// A held.Lock is all that this proxy knows about a lock that a connection was given: see package
// held, which renews session locks until their connections end. A lock is abandoned if its client
// is disconnected or was never sent its token; then the proxy releases it (abandoned.go).
//
// # Goroutines
//
// Commands run in event loops and in their sessions' goroutines. Background goroutines run the jobs
// of timers, the batches of the background clients, and a reader and a writer of hints.Listener for
// each login and database that it hears of. Locks.Close ends all of them.
//
// # Guarantees
//
// As long as the upstream keeps what it has acknowledged:
//
//   - A lock that LOCK took belongs to its holder until its timeout, UNLOCK, or DEL of its key;
//     no other client is given a token before.
//   - The tokens of a key strictly increase, while its record lives (--fence-retention) or the
//     upstream's clock is not set back.
//   - UNLOCK frees only the lock of the token, or of the connection, that it names.
//   - Waiters get the lock in order of arrival at one proxy. Proxies take turns: each serves the
//     clients that waited when its turn began. LOCK without WAIT overtakes no waiter that the lock
//     record lists.
//   - A key that holds something else is left untouched.
//
// It is not guaranteed that work stops when its lock has expired. An upstream that loses writes in
// a failover loses locks with them, except as Durability says: see docs/durability.md.
package lockcmd
