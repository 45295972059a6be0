// Package badlink is a network link between clients and a server that a test can make bad: held in
// one direction or both, cut, reset, slow, far, trickling, corrupting, torn within a reply, or saying
// more than the server says.
//
// It is no library, since a fault must hit open connections, corrupt single bits, and end a one-way
// cut in either manner: the held bytes arrive late, as with TCP, or the connection breaks.
package badlink
