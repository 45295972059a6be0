// Package fence runs FENCE: a command that is carried out only while a token holds its lock.
//
// Fences.Begin returns the first Step of a request. The command runs in a transaction that watches
// the lock, so its reply is Redis's own, byte for byte. Nothing is remembered between requests.
package fence
