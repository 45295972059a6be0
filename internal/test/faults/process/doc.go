//go:build linux

// Package process runs the real programs of a fault test, redis-server
// and lockproxy, and does to them what machines and operators do: kill,
// pause, restart, and for Redis power cuts and wrong clocks.
package process
