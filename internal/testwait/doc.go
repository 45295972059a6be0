// Package testwait is how tests wait: for a condition (Until), for a channel (For), or for a
// goroutine that waits (Blocked), and always with the same patience. Tests have no other timeouts. What a test waits for is an event, never
// a time that has passed.
package testwait
