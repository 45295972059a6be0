package admin

import "time"

// SetTimeouts bounds how long a request may take to arrive, and an answer. The server is not
// serving yet.
func SetTimeouts(s *Server, d time.Duration) { s.http.ReadTimeout, s.http.WriteTimeout = d, d }

// SetHeaderTimeout bounds how long a request's header may take to arrive.
func SetHeaderTimeout(s *Server, d time.Duration) { s.http.ReadHeaderTimeout = d }

// SetPagesFor says how long the answer to which pages there are is used.
func SetPagesFor(s *Server, d time.Duration) { s.pages.lasts = d }
