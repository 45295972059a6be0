// Package eventloop waits for many sockets at once and handles what arrives in place, without a
// goroutine for each.
//
// A connection has a Registration with a Handler, and always exactly one reader:
//
//	goroutine  --Park-->  parked  --something arrives-->  loop: Handler.Ready  --Stay-->  parked
//	    ^                    |                                     |
//	    +------ Wake --------+------------- Leave, Wake -----------+   Handler.Resume runs
//
// A goroutine that has nothing left to do calls Park and ends. From then on the loop calls
// Handler.Ready whenever something has arrived, until that returns Leave because it would have to
// wait, or until Wake is called. Then Handler.Resume runs in a new goroutine, which reads the
// connection until it calls Park again. So code that waits has a goroutine, and a connection where
// nothing happens has none.
//
// A Handler can also wait for something other than its connection without a goroutine: when that
// happens, Notify calls Ready as an arrival does. Post has the loop do that, from anywhere.
//
// A Reader does this for a connection that is only read: both Ready and Resume have it read, and its
// Consumer takes what has come. Homes, lanes and the connections to a cluster's nodes have one.
//
// For each request of a client this saves waking a goroutine, and the read by which a goroutine
// finds out that there is no more. The loop learns of each arrival once (epoll, edge-triggered),
// and also when the peer has closed. So a read that has not filled its buffer was the last one. Two
// exceptions: once a connection has received TCP urgent data, a goroutine reads it; and a Unix
// socket over which files are passed may have more to read.
//
// One Iteration of a loop calls the Handlers of all connections where something has arrived.
// Iteration.AtEnd puts off to its end what is cheaper to do once for many of them, such as sending
// what they have gathered.
//
// After an arrival a loop spins for a moment: it looks again without sleeping (spin). Between two
// looks it gives way to other programs, and to other goroutines. It stops for a while where nothing
// has come in time, or where other programs kept the processor.
//
// Goroutines: one for each loop, from Start to Stop, which waits for it. The goroutine of a Resume
// belongs to the owner of the Handler.
//
// There are loops on Linux only. Elsewhere Start returns a nil *Loops, and all methods work on the
// nil *Loops and *Registration that follow from it: nothing is ever parked.
package eventloop
