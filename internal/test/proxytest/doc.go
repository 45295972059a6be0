// Package proxytest is what the tests of whole proxies share: proxies in this process (Start,
// StartBoth) or in a separate process (StartProcess, Binary), and clients that show every byte
// (Conn).
//
// Everything that a test starts ends with the test. Servers that several tests use, and the built
// command, end with Main.
package proxytest
