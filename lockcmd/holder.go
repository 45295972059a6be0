package lockcmd

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// Holder is one client connection as the holder of locks.
type Holder struct {
	Connection string // names this connection among all connections of all proxies; no blanks
	Addr       string // for people; no blanks

	requests uint64  // only the session's goroutine counts
	unheard  unheard // only the session's goroutine uses it

	mu     sync.Mutex
	leases map[lineKey]*lease // guarded by mu; session locks, which are renewed and end with the connection
}

// unheard is the last lock that was given to a client which has not sent anything since: it may never have read of it.
type unheard struct {
	at    lineKey
	as    Identity
	token int64 // 0 is none
}

// Heard takes note that the client has sent something.
func (h *Holder) Heard() { h.unheard.token = 0 }

// lease is a session lock.
type lease struct {
	key     string
	as      Identity
	token   int64
	timeout time.Duration
	trusted time.Time // until when the upstream keeps it at least, by this process's monotonic clock
	cancel  func()    // of the next renewal
}

// request is one LOCK of a connection, as companions name it.
type request struct {
	key        string
	timeout    time.Duration
	connection string
	number     string
	client     string
	session    bool
	owner      string
}

func (h *Holder) request(key string, o lockOptions) request {
	h.requests++
	return request{key: key, timeout: o.timeout, connection: h.Connection, number: strconv.FormatUint(h.requests, 10),
		client: h.Addr, session: o.session, owner: o.owner}
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// keep makes a lock that was just acquired a session lock. asked is when it was asked for: the upstream keeps it for timeout
// from some time after.
func (l *Locks) keep(s Session, r request, token int64, asked time.Time) {
	h, at := s.Holder(), lineKey{s.Identity().DB, r.key}
	ls := &lease{key: r.key, as: s.Identity(), token: token, timeout: r.timeout, trusted: asked.Add(r.timeout)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases == nil {
		h.leases = map[lineKey]*lease{}
	}
	if old := h.leases[at]; old != nil {
		old.cancel()
	}
	h.leases[at] = ls
	l.renewLater(s, at, ls, r.timeout/3)
}

// renewLater renews after a time; h.mu is held.
func (l *Locks) renewLater(s Session, at lineKey, ls *lease, after time.Duration) {
	ls.cancel = l.agenda.after(after, func(ctx context.Context) { l.renew(ctx, s, at, ls) })
}

// renew lets a session lock run for its timeout again. While the upstream doesn't answer it tries again, until the lock can't
// be trusted any more.
func (l *Locks) renew(ctx context.Context, s Session, at lineKey, ls *lease) {
	asked := time.Now()
	ints, err := evalInts(l.chores.on(ctx, ls.as, time.Until(ls.trusted)), relockScript, 1, ls.key, "",
		strconv.FormatInt(ls.token, 10), milliseconds(ls.timeout), l.unit(), milliseconds(l.cfg.FenceRetention))
	h := s.Holder()
	h.mu.Lock()
	if h.leases[at] != ls || ctx.Err() != nil { // released, or taken anew, meanwhile
		h.mu.Unlock()
		return
	}
	switch {
	case err == nil && ints[0] == 1:
		ls.trusted = asked.Add(ls.timeout)
		l.renewLater(s, at, ls, ls.timeout/3)
		h.mu.Unlock()
		return
	case err != nil && time.Now().Before(ls.trusted):
		l.renewLater(s, at, ls, min(max(ls.timeout/20, 5*time.Millisecond), time.Second, max(time.Until(ls.trusted), time.Millisecond)))
		h.mu.Unlock()
		return
	}
	delete(h.leases, at)
	h.mu.Unlock()
	l.log.Warn("session lock lost", "key", ls.key, "token", ls.token, "client", h.Addr, "error", err)
	s.LockLost(ls.key, ls.token)
}

// forget ends the renewing of a lock that has been released; token 0 is any.
func (h *Holder) forget(at lineKey, token int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ls := h.leases[at]; ls != nil && (token == 0 || ls.token == token) {
		ls.cancel()
		delete(h.leases, at)
	}
}

// Gone releases the session locks of a connection that has closed, and returns when that is done or can't be. broken says
// that the client has closed without reading all that it was sent: then a lock whose token was the last of it was never its.
func (l *Locks) Gone(h *Holder, broken bool) {
	if u := h.unheard; broken && u.token != 0 {
		l.releaseToken(l.chores.on(l.agenda.ctx, u.as, choreTimeout), u.at, u.as, u.token)
	}
	h.mu.Lock()
	leases := h.leases
	h.leases = nil
	for _, ls := range leases {
		ls.cancel()
	}
	h.mu.Unlock()
	for at, ls := range leases {
		// By the connection, not the token: the same owner may have taken it over on another.
		_, err := l.release(l.chores.on(l.agenda.ctx, ls.as, choreTimeout), at, ls.as, proof{"connection", h.Connection})
		if err != nil {
			l.log.Warn("cannot release the session lock of a closed connection: it runs until its timeout",
				"key", ls.key, "token", ls.token, "client", h.Addr, "timeout", ls.timeout, "error", err)
		}
	}
}
