//go:build linux

// Package process runs the real programs of a fault test, redis-server and lockproxy. It kills,
// pauses and restarts them, and for Redis simulates power cuts and wrong clocks.
package process
