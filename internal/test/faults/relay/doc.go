//go:build linux

// Package relay is a TCP link that can be made bad: cut, cut
// in one direction, stalled, slow, trickling, corrupting.
//
// It is no library, since a fault must hit open connections, corrupt single bits, and end a one-way
// cut in either manner: the held bytes arrive late, as with TCP, or the connection breaks.
package relay
