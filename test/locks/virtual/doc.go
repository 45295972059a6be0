// Package virtual is tests of whole proxies in virtual time, see package virtualtest. With the race
// detector it has none.
package virtual
