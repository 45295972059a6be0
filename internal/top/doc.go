// Package top shows the locks of a lockproxy in a terminal, live (Watch), or once where there is no
// terminal (Snapshot).
//
// It is a client like any other. It sends LOCKSCAN, LOCKINFO, LOCKTOP and LOCKLOG, so it sees what
// its user can see, in its database. Its cost is bounded as for the live page; see package survey.
// The numbers in its first line are from INFO lockproxy. They are of that proxy alone, and so are
// the waiters.
//
//	proxySource  asks the proxy                          source.go, seen.go
//	watcher      surveys the locks step by step          top.go
//	picture      the result of one step                  top.go
//	screen       the terminal: keys, selection, help     screen.go
//	             columns and rows of the table           table.go
//	page         what locks cost, what happened, one lock    pages.go, seen.go
//
// # Goroutines
//
// Snapshot starts none. Watch runs the screen in its caller's goroutine and starts two: one reads
// the terminal's events, the other asks the proxy at each interval. The second runs each step in a
// goroutine, so that a slow proxy does not delay keys. Watch ends all of them and waits.
package top
