// Package keyname has the names of the keys and channels that belong to a lock, and tells what a
// key's name means.
//
// Record, Fence and Claim name the keys next to a lock's, in its cluster slot. LockOf and MadeBy
// find the lock by them. SlotChannel is where a proxy hears of the locks in a slot. Shape and Match
// are for people who look for keys.
package keyname
