// Package testredis runs real redis-server processes for tests, each on a free loopback port and in
// a separate directory, and ends them with the test.
//
// A test connects to a server by TCP. Its proxies connect by TCP, TLS or a Unix socket: see
// ChooseTransport and Reach.
package testredis
