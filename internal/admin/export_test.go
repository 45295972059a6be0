package admin

import "time"

// SetTimeouts bounds how long a request may take to arrive, and an answer. The server is not
// serving yet.
func SetTimeouts(s *Server, d time.Duration) { s.http.ReadTimeout, s.http.WriteTimeout = d, d }
