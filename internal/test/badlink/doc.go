// Package badlink is a network link between clients and a server that a test can make bad. The link
// can hold bytes in one direction or both, delay, slow down or corrupt them, break connections,
// also within a reply, and add bytes that the server has not sent.
//
// No library does this. A fault must hit open connections and corrupt single bits, and a one-way
// cut must end in either manner: the held bytes arrive late, as with TCP, or the connection breaks.
package badlink
