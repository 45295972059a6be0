// Package testwait lets tests wait for a condition (Until), a channel (For), a goroutine that waits
// (Blocked) or the kernel of a listener (Connected), always with the same timeout. Tests have no
// other timeouts. They wait for events, never for a time to pass.
package testwait
