// Package upstream is the Redis that the proxy stands in front of, as its URL names it: how it is
// found, and how a connection to it is made. It knows nothing of clients, lanes, homes or locks.
//
//	Parse   a URL becomes an Upstream: a server at a fixed address, the master of a group of
//	        Sentinels, or a whole cluster
//	Dial    a connection: TCP or Unix socket, then TLS, then what it is set up as (Setup: login,
//	        database, protocol, labels), and ROLE where Sentinels tell the address
//	SetUp   sets up a connection as new for a client, Reset makes one as new again, and Fresh and
//	        Prepare say whether and where it serves
//	Follow  keeps up with who the master is, or which node serves which slots
//	Client  a go-redis client for requests of the proxy's own, by the same connections
//
// Behind Sentinels a connection ends when another master is named, and none is made to a server
// that says that it is a replica. The connection to a cluster is one to all of its nodes, each made
// as one to a single server: see package cluster.
//
// An attempt ends with its context. A failure is an *Error, which says whether a request may have
// run, or a *Refused: the server's own answer to the login. Neither holds a password.
package upstream
