// Package admin is the HTTP server for those who run the proxy: whether it is alive, what it does,
// who holds which lock.
//
//	/healthz   200 as long as the process lives
//	/readyz    200 when clients can be served; otherwise 503 and why; 503 in a shutdown too
//	/metrics   for Prometheus
//	/          the live page: the locks that are held now, and the last minutes
//	/events    the stream that keeps the page up to date
//	/api/...   JSON: locks, lock, top, log; for the page also session, login, logout, release
//	/debug/pprof/, /debug/locks/pprof  with Config.Pprof only
//
// # Types
//
//	Server     the server: New, Serve, Close                       admin.go
//	Metrics    what the proxy reports to, and Prometheus reads     metrics.go, readings.go
//	readiness  asks the proxy whether it is ready, not too often   health.go
//	history    a point for each of the last seconds                history.go
//	streams    the open pages, at most 8                           streams.go, events.go
//	pages      links to the pages of other proxies                 pages.go
//	logins     who may release locks                               login.go, release.go
//	guard      refuses what a browser could be made to send        guard.go
//
// The locks of the upstream come from package survey (locks.go). It scans as the user of the
// upstream's URL, only while a page is open, and within a budget. What this proxy knows itself, its
// holders and waiters, is shown at once.
//
// # Who may do what
//
// Everybody who reaches the address can read everything: names of locks and owners, addresses of
// clients. Values and passwords are never shown. Only the release of a lock needs Config.Token;
// without a token no lock can be released.
//
// Browsers cannot be misused: on a loopback address only requests for a loopback name are answered
// (DNS rebinding), nothing from other origins is loaded or framed, and a release needs a session's
// cookie, its CSRF token and the same origin.
//
// # Goroutines
//
// One records the history, one asks whether the proxy is ready, and one announces the page, from
// New until Close. net/http has one for each connection; a stream stays in its own. Close ends all
// of them. It waits for the first three, and up to 2 s for answers that are being written.
package admin
