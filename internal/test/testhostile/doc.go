// Package testhostile has malformed requests, for tests of code that must withstand them.
package testhostile
