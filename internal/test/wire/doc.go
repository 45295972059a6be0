// Package wire is the tests' own reader and writer of the Redis protocol. It shares no code with
// lockproxy, so that a mistake in how lockproxy frames or decodes messages is not made a second time
// by the test that looks at them.
//
// It is strict: it accepts what Redis sends, byte for byte, and nothing that is only like it. Lines
// end with CR and LF, numbers are as short as they can be, a push has a kind and stands between two
// replies, and each protocol version has its own types and nulls.
package wire
