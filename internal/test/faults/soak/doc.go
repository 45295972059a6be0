//go:build linux

// Package soak runs a lock service and its clients under faults, round by round, and judges the
// history of each round.
//
// A Bench is the service: a redis-server whose clock can be stepped, three proxies, and a relay on
// each link between them and before them. It also has a fourth proxy, whose links are corrupted,
// and a machine that can vanish. A Plan lists the faults of a round and their times, and depends on
// a seed alone. Run carries out a plan while clients work, lets all faults end, takes every lock
// once more, and checks the history of the clients.
package soak
