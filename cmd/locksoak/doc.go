//go:build linux

// Command locksoak does to lockproxy what machines, networks and operators do, for as long as
// asked, and checks that what it promises holds: see docs/guarantees.md. What it does follows from
// a seed.
package main
