// Package testredis runs real redis-server processes for tests, each on a free loopback port and in
// a separate directory, and ends them with the test.
package testredis
