//go:build linux

// Package soak runs a lock service and its clients under faults, round by round, and judges the
// history of each round.
//
// A Bench is the service: a redis-server whose clock can be stepped, three proxies, and a relay on
// each link between them and before them. Next to it are a fourth proxy, whose links are corrupted,
// and a machine that can vanish. A Plan says what is done to it in a round, and when; it depends on
// a seed alone. Run carries it out while clients work, lets all faults end, asks for every lock
// once more, and checks what the clients have seen.
package soak
