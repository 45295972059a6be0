// Package testhostile is a collection of requests that are wrong, for tests of what must bear them.
package testhostile
