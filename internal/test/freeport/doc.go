// Package freeport finds loopback ports for servers that tests, the benchmark and the soak start.
//
// The kernel's own choice of a port is not safe: between its choice and the server's listening, the
// kernel can give the port to any other listener or outgoing connection. So the ports are below the
// range that Linux, macOS and Windows use for those. The UDP port of the same number stays bound,
// which reserves the port among all processes that use this package. Ports on which other programs
// listen already are left out.
package freeport
