// Package testrules counts the bounds of time, sleeps, timeouts and short leases in tests: a test
// with these can judge the machine instead of the program. The package's own test fails if a file
// has more of them than exceptions.txt allows.
package testrules
