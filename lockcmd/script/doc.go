// Package script has the Lua scripts of locks: what they are told, and what they answer. It asks
// nobody: those who have a connection send its Calls, and give it the Answers.
//
// A lock is a timestamp lock. Its key holds the time at which the lock expires, as programs with
// SETNX recipes have always written it. A second key, the lock record, holds the token, the owner
// and the times. read.lua describes both. Each script is one atomic step, by the upstream's clock
// alone.
//
// A Maker makes the Calls of one proxy: Lock, LockAll, Unlock, UnlockAll, Relock, Done, and Call
// for scripts that are told only a key. Attempt, EachUnlocked and Ints read the
// answers. A Request is a LOCK as the lock record names it, a Proof is what shows that a lock is
// its releaser's.
//
// The upstream runs the Calls of several clients together by batch.lua. Simple calls of LOCK and
// UNLOCK on exclusive locks end in fast paths (fast_lock.lua and those next to it).
package script
