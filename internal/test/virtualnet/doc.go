// Package virtualnet is a network within this process, for tests in virtual time: a bubble of
// testing/synctest can tell that a goroutine waits for one of these connections, and cannot for a
// socket's.
//
// Connections are like those of TCP: what is written is kept for the reader, up to a bound; each
// direction closes by itself; a connection that is closed with unread bytes, or that is written to
// after its peer has closed, is reset. They have addresses and deadlines. They are not sockets:
// they have no syscall.RawConn.
//
// Dial takes no time, and neither does a byte on its way.
package virtualnet
