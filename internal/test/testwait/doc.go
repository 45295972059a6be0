// Package testwait is how tests wait: for a condition (Until), for a channel (For), for a goroutine
// that waits (Blocked), or for a listener's kernel (Connected), and always with the same patience.
// Tests have no other timeouts. What a test waits for is an event, never a time that has passed.
package testwait
