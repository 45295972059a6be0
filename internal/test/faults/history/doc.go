//go:build linux

// Package history records what clients of a lock service saw, and which faults occurred: the
// material that package check judges.
//
// All times are of the machine's monotonic clock (Now), so
// that several processes can share a history.
package history
