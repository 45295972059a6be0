// Package stress runs a command, such as go test, under CPU and disk pressure, with random stalls.
// All cores compute, a file is written and synced all the time, and each redis-server that the
// command has started stops at random for up to two seconds. A test that fails only under stress
// judges the machine instead of the program.
//
// The package stops only redis-servers that descend from the command, and continues all of them
// before it ends. A server that a test has paused stays paused: see testredis.PausedFile.
package stress
