// Package wire is the tests' own reader and writer of the Redis protocol. It shares no code with
// lockproxy, so that no mistake of lockproxy in framing or decoding is repeated in its tests.
//
// The reader is strict: it accepts only messages that Redis itself can send. Lines end with CR and
// LF, numbers have no superfluous digits, a push has a kind and stands between two replies, and
// each protocol version has its own types and nulls.
package wire
