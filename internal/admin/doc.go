// Package admin is the HTTP server for operators: whether the proxy is alive, what it does, and who
// holds which lock.
//
//	/healthz   200 as long as the process lives
//	/readyz    200 when clients can be served; otherwise 503 and why; 503 in a shutdown too
//	/metrics   for Prometheus
//	/          the live page: the locks that are held now, and the last minutes
//	/events    the stream that keeps the page up to date
//	/api/...   JSON: locks, lock, top, log; for the page also session, login, logout, release
//	/debug/pprof/                      with Config.Pprof only
//
// # Types
//
//	Server     the server: New, Serve, Close                       admin.go
//	Metrics    collects what the proxy reports, for Prometheus     metrics.go, readings.go
//	readiness  asks the proxy whether it is ready, not too often   health.go
//	history    a point for each of the last seconds                history.go
//	streams    the open pages, at most 8                           streams.go, events.go
//	pages      links to the pages of other proxies                 pages.go
//	logins     sessions that may release locks                     login.go, release.go
//	guard      refuses requests that browsers were tricked into    guard.go
//
// The locks of the upstream come from package survey (locks.go). It scans as the user of the
// upstream's URL, only while a page is open, and within a budget. The holders and waiters of this
// proxy itself are shown at once.
//
// # Who may do what
//
// Anyone who reaches the address can read everything: names of locks and owners, addresses of
// clients. Values and passwords are never shown. Only the release of a lock needs Config.Token;
// without a token no lock can be released.
//
// Browsers cannot be misused: on a loopback address only requests for a loopback name are answered
// (DNS rebinding), nothing from other origins is loaded or framed, and a release needs a session's
// cookie, its CSRF token and the same origin.
//
// # Goroutines
//
// From New until Close one records the history, one asks whether the proxy is ready, and one
// announces the page. net/http has one for each connection; a stream stays in its own. Close ends
// all of them. It waits for the first three, and up to 2 s for answers that are being written.
package admin
