// Package testrules counts what makes tests judge the machine instead of the program: bounds of
// time, sleeps, timeouts of their own, and leases that a stop of the machine ends. Its test fails
// when a file has more of these than exceptions.txt allows it.
package testrules
