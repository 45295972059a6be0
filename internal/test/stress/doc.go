// Package stress runs a command, such as go test, while the machine is as bad as machines are: both
// cores are taken by other programs, a disk is written to and synced all the time, and each
// redis-server that the command has started stops now and then, for up to two seconds. Tests that
// fail there, and not otherwise, judge the machine instead of the program.
//
// It stops only redis-servers that descend from the command, and lets all of them go on before it
// ends. A server that a test has paused stays as it is: see testredis.PausedFile.
package stress
