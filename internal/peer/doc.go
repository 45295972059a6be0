// Package peer detects that the machine at the other end of a TCP connection has vanished.
//
// A Guard checks one connection by a timer, from Start until Stop or the end of the
// connection. It has no goroutine between two checks.
package peer
