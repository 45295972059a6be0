// Package loopguard finds, in tests, functions that would wait in an event loop.
//
// A function that can wait calls MayWait first, even if it need not wait this time. In a loop that
// panics, so a test fails with the stack at the first call, on a machine of any speed: no time is
// measured. A test of this package finds functions that wait and do not call it.
//
// The guard is off in a proxy that serves. There MayWait costs one look at a flag.
package loopguard
