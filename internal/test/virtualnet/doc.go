// Package virtualnet is a network within this process, for tests in virtual time. A bubble of
// testing/synctest sees that a goroutine waits for one of these connections. It does not see that a
// goroutine waits for a socket.
//
// Connections are like those of TCP. Written bytes are kept for the reader, up to a bound. Each
// direction closes by itself. A connection is reset if it is closed with unread bytes, or written
// to after its peer has closed. Connections have addresses and deadlines, and no syscall.RawConn.
//
// Dials and bytes take no time.
package virtualnet
