//go:build linux

// Package history records the operations of the clients of a lock service and the faults. Package
// check judges these histories.
//
// All times are of the machine's monotonic clock (Now), so that several processes can share a
// history.
package history
