//go:build linux

// Package client provides the clients of a fault test. They lock, wait, write with fences, hang up,
// overstay their leases, ask questions that have one right answer, and record what they saw.
//
// Conn reads replies by package wire: an unexpected byte is Garbled.
package client
