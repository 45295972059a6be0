// Package socket reads and writes a TCP or Unix socket more cheaply than its net.Conn does, and
// without waiting. TLS over such a socket is read and written in the same way.
//
// For each system call of a net.Conn, Go's scheduler prepares to run something else, and watches
// calls that last. A call on a non-blocking socket is over before that helps. For a relay, which
// does little else, this is a tenth of the work. So most calls here bypass the scheduler (on Linux;
// elsewhere they are the usual ones).
//
// A Socket waits through its net.Conn, whose deadlines and Close apply. Calls of both can be mixed.
//
// TLS is a tls.Conn. Its records are read from a Socket as they come. The records that it writes are
// gathered until the writer hands them to the Socket, one at a time. A record that the kernel has not
// taken whole counts as not written: the peer can't read a part of one.
//
// The package starts no goroutine.
package socket
