// Package commands is the one table of Redis's commands: what the proxy and the cluster must know
// of a command to send it to the right place. It is pure data and functions of a request: no I/O.
//
// Each command is in one row of the table, as is each subcommand that differs from its command. A
// row says
//
//   - whether the command can go by a connection that clients share (Class),
//   - what its reply does to the state of its connection (Effect),
//   - which arguments are keys (Keys), and what it can do to a lock of a client that doesn't use
//     LOCK (Foreign),
//   - to which nodes of a cluster it goes, and how one reply is made of theirs (Nodes, Join), or
//     why a cluster as a whole can't run it (Refused).
//
// Find looks a name up, and For a subcommand. A command that is not in the table gets Unknown, the
// zero row: it goes to one node, by the client's own connection.
//
// Anything else depends on further arguments, such as CLIENT REPLY's, or is code of the package
// that sends the command. Such a package keeps what it adds in its own slice, by ID.
//
// A test compares the table with what the installed redis-server says of itself by COMMAND.
package commands
