// Package panics decides what a panic takes with it: the client whose request panicked, or the
// process.
//
// Contain is deferred where the code of one client begins: see entries. The stack, which is still
// whole at that moment, tells what the panic has interrupted. If each function there changes only
// state of this client (see own), the panic becomes an error, and the client is disconnected: all
// of its state is thrown away with it. If any function there changes state that clients share, or
// its state is not known here, the process ends with the stack, as without this package: nobody
// knows what was half done. So a function that is forgotten here ends the process.
//
// A mutex of the client's own can still be locked, if it was not unlocked by a defer. The caller
// finds out by Free, and ends the process if so.
package panics
