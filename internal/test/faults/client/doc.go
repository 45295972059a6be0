//go:build linux

// Package client provides the clients of a fault test. They lock, wait, write with fences,
// disconnect, exceed their leases, ask questions that have one right answer, and record all
// replies.
//
// Conn reads replies by package wire, and reports an unexpected byte as Garbled.
package client
