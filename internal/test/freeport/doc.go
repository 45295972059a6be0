// Package freeport finds loopback ports for servers that tests, the benchmark and the soak start.
//
// It is not enough to ask the kernel for a port and close it again: until the server listens, the
// kernel can give the port to any other listener or outgoing connection. So the ports are below the
// range that Linux, macOS and Windows use for those. Each is reserved among all processes that use
// this package, because the UDP port of the same number stays bound. Other programs' ports in the
// range are avoided if they listen already.
package freeport
