// Package socket reads and writes a plain TCP or Unix socket more cheaply than its net.Conn does.
//
// For each system call of a net.Conn, Go's scheduler prepares to run something else, and watches
// calls that last. A call on a non-blocking socket is over before that helps. For a relay, which
// does little else, this is a tenth of the work. So most calls here bypass the scheduler (on Linux;
// elsewhere they are the usual ones).
//
// A Socket waits through its net.Conn, whose deadlines and Close apply. Calls of both can be mixed.
//
// The package starts no goroutine.
package socket
