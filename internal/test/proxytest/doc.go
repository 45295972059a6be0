// Package proxytest has what tests of whole proxies share: proxies in this process (Start,
// StartBoth) or in a separate process (StartProcess, Binary), and clients that show every byte
// (Conn).
//
// A proxy or client ends with the test that has started it. Servers that several tests share, and
// the built command, end with Main.
package proxytest
