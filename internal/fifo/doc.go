// Package fifo is the queue of what is owed: replies to clients, and answers of servers. It is pure:
// no I/O, no clock, no lock.
package fifo
