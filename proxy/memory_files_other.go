//go:build !linux

package proxy

// warnOfMemoryFiles can't tell here where temporary files are.
func (s *Server) warnOfMemoryFiles() {}
