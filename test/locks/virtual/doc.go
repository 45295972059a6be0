// Package virtual has tests of whole proxies in virtual time, see package virtualtest. With the
// race detector it has no tests.
package virtual
