//go:build !linux

package proxy

// cork does nothing here: a client may have the last answer for a moment before it is told of the end.
func (s *session) cork(hold bool) { s.corked = hold }
