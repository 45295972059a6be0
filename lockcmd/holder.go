package lockcmd

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Holder is one client connection as the holder of locks.
type Holder struct {
	Connection string // names this connection among all connections of all proxies; no blanks
	Addr       string // for people; no blanks

	requests uint64    // only the session's goroutine counts
	granted  uint64    // likewise: locks that the client has been given
	unheard  []unheard // only the session's goroutine uses it; the oldest first
	lost     []unheard // likewise
	unsure   []orphan  // likewise: of LOCKs whose replies were lost with the upstream connection, so that nobody knows their tokens
	taken    takenLocks

	mu     sync.Mutex
	leases map[lineKey]*lease // guarded by mu; session locks, which are renewed and end with the connection
}

// unheard is a lock that was given to a client which has not sent anything since: it may never have read of it.
type unheard struct {
	number uint64 // which of those that were granted
	at     lineKey
	as     Identity
	token  int64
	sent   Sent
}

// Sent is when and where a client was sent the token of a lock. Of one that was not sent yet it is zero.
type Sent struct {
	At  time.Time
	End uint64 // how many bytes the client had been sent then, at least, with the token
	In  uint64 // how many bytes had come from the client by then: it sent these before it can have read the token
}

// maxUnheard bounds how many locks are unheard: of more, the oldest are taken for heard of.
const maxUnheard = 1024

// maxUnsure bounds the LOCKs of a connection whose outcomes are unknown; of more, the oldest are forgotten.
const maxUnsure = 64

// failed takes care of a LOCK that failed, if it may have taken the lock all the same. Not of an OWNER's, whose lock may be an older
// one that he knows.
func (l *Locks) failed(ctx context.Context, s Session, at lineKey, as Identity, r request, err error) {
	if !mayHaveRun(err) || r.owner != "" {
		return
	}
	o := l.unsureOf(at, as, r)
	s.Holder().doubt(o)
	var late LateError
	switch {
	case errors.As(err, &late): // it is still to run
		l.agenda.after(0, func(ctx context.Context) {
			select {
			case <-late.Answered:
				l.startRelease(l.unsureOf(at, as, r), func() {})
			case <-ctx.Done():
			}
		})
	case context.Cause(ctx) != ErrLost: // nobody knows when it ends
		l.startRelease(o, func() {})
	}
}

// doubt has a lock released, which the connection may have taken, when that has ended. Until then the LOCK may still be on its way
// to the upstream.
func (h *Holder) doubt(o orphan) {
	now := time.Now()
	h.unsure = slices.DeleteFunc(h.unsure, func(old orphan) bool { return now.After(old.until) })
	if len(h.unsure) == maxUnsure {
		h.unsure = slices.Delete(h.unsure, 0, 1)
	}
	h.unsure = append(h.unsure, o)
}

// grant takes note that the client is given a lock.
func (h *Holder) grant(at lineKey, as Identity, token int64) {
	h.granted++
	if len(h.unheard) == maxUnheard {
		h.unheard = append(h.unheard[:0], h.unheard[maxUnheard/2:]...)
	}
	h.unheard = append(h.unheard, unheard{number: h.granted, at: at, as: as, token: token})
}

// Granted is how many locks the client has been given: the number of the last one. It is for the session's goroutine, as are
// Sent, Heard, LastSent and Unreached.
func (h *Holder) Granted() uint64 { return h.granted }

// Sent takes note of where the token of the lock with a number was sent.
func (h *Holder) Sent(number uint64, sent Sent) {
	for i := len(h.unheard) - 1; i >= 0 && h.unheard[i].number >= number; i-- {
		if h.unheard[i].number == number {
			h.unheard[i].sent = sent
		}
	}
}

// Heard takes note that in bytes have come from the client so far, some of which it may have sent when it had read its tokens.
func (h *Holder) Heard(in uint64) {
	if len(h.unheard) == 0 {
		return
	}
	h.unheard = slices.DeleteFunc(h.unheard, func(u unheard) bool { return !u.sent.At.IsZero() && u.sent.In < in })
	if len(h.unheard) == 0 && cap(h.unheard) > maxUnheard/8 {
		h.unheard = nil // few clients are given so many at once, and those not always
	}
}

// LastSent is where the last token was sent; ok is false if the client has been heard since.
func (h *Holder) LastSent() (sent Sent, ok bool) {
	if len(h.unheard) == 0 {
		return Sent{}, false
	}
	return h.unheard[len(h.unheard)-1].sent, true
}

// Unreached says that the connection has ended, and of which tokens the client can't have read: those locks were never its, and Gone releases them.
func (h *Holder) Unreached(lost func(Sent) bool) {
	for _, u := range h.unheard {
		if lost(u.sent) {
			h.lost = append(h.lost, u)
		}
	}
}

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

// companion is what a companion says of the holder, from `session` on; see read.lua.
func (r request) companion() string {
	return flag(r.session) + " held " + r.connection + " " + r.number + " " + r.client + " -\n" + r.owner
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
	l.holdings.keep(at, token, s)
	h.mu.Lock()
	defer h.mu.Unlock()
	l.replace(s, at, ls, asked.Add(r.timeout/3))
}

// replace makes ls the lease of a lock, to be renewed at a time; h.mu is held.
func (l *Locks) replace(s Session, at lineKey, ls *lease, when time.Time) {
	h := s.Holder()
	if h.leases == nil {
		h.leases = map[lineKey]*lease{}
	}
	if old := h.leases[at]; old != nil {
		old.cancel()
	}
	h.leases[at] = ls
	l.renewAt(s, at, ls, when)
}

// ShortestLease is the shortest timeout of the client's session locks, 0 if it has none. It may be called from any goroutine.
func (h *Holder) ShortestLease() (shortest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ls := range h.leases {
		if shortest == 0 || ls.timeout < shortest {
			shortest = ls.timeout
		}
	}
	return shortest
}

// relocked lets a session lock be renewed with the timeout that RELOCK has given it, if the token is of one.
func (l *Locks) relocked(s Session, at lineKey, token string, timeout time.Duration, asked time.Time) {
	h := s.Holder()
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.leases[at]
	if old == nil || strconv.FormatInt(old.token, 10) != token {
		return
	}
	ls := &lease{key: old.key, as: old.as, token: old.token, timeout: timeout, trusted: asked.Add(timeout)}
	l.replace(s, at, ls, asked.Add(timeout/3))
}

// suspend ends the renewing of the session lock that an UNLOCK with this proof is about to release, since a renewal that ran
// between the UNLOCK and its reply would take the lock for lost. It is nil if there is none.
func (h *Holder) suspend(at lineKey, p proof) *lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	ls := h.leases[at]
	if ls == nil || p.kind == "token" && p.value != strconv.FormatInt(ls.token, 10) {
		return nil
	}
	ls.cancel()
	delete(h.leases, at)
	again := *ls // what is under way of its renewal finds it gone
	return &again
}

// resume renews a lock again, at once, that has not been released, or finds it lost. ls may be nil.
func (l *Locks) resume(s Session, at lineKey, ls *lease) {
	if ls == nil {
		return
	}
	h := s.Holder()
	h.mu.Lock()
	defer h.mu.Unlock()
	l.replace(s, at, ls, time.Now())
}

// renewAt renews at a time; h.mu is held. That is counted from when the last renewal was asked for, as the lease is: its reply may
// have taken long.
func (l *Locks) renewAt(s Session, at lineKey, ls *lease, when time.Time) {
	ls.cancel = l.agenda.after(time.Until(when), func(ctx context.Context) { l.renew(ctx, s, at, ls) })
}

// renew lets a session lock run for its timeout again. While the upstream doesn't answer it tries again, until the lock can't
// be trusted any more.
func (l *Locks) renew(ctx context.Context, s Session, at lineKey, ls *lease) {
	asked := time.Now()
	c := l.relockCall(at, strconv.FormatInt(ls.token, 10), ls.timeout, true)
	answer, err := l.chores.on(ctx, ls.as, ls.key, ls.trusted).Eval(c)
	ints, err := c.ints(1, answer, err)
	if err == nil && ints[0] == 1 {
		err = answer.missing(c.Confirm, notLonger) // a failover could bring back the earlier expiry: it isn't trusted to run longer
	}
	h := s.Holder()
	h.mu.Lock()
	if h.leases[at] != ls || ctx.Err() != nil { // released, or taken anew, meanwhile
		h.mu.Unlock()
		return
	}
	switch {
	case err == nil && ints[0] == 1:
		ls.trusted = asked.Add(ls.timeout)
		l.holdings.extend(at, strconv.FormatInt(ls.token, 10), ls.trusted)
		l.renewAt(s, at, ls, asked.Add(ls.timeout/3))
		h.mu.Unlock()
		return
	case err != nil && time.Now().Before(ls.trusted):
		pause := min(max(ls.timeout/20, 5*time.Millisecond), time.Second, max(time.Until(ls.trusted), time.Millisecond))
		l.renewAt(s, at, ls, time.Now().Add(pause))
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	l.lose(s, at, ls.token, err)
}

// errTakenAway is why a session lock is lost that another connection of this proxy has released.
var errTakenAway = errors.New("released by another connection")

// lose tells a session that its lock is lost, unless it has no such session lock any more.
func (l *Locks) lose(s Session, at lineKey, token int64, err error) {
	h := s.Holder()
	h.mu.Lock()
	ls := h.leases[at]
	if ls == nil || ls.token != token {
		h.mu.Unlock()
		return
	}
	ls.cancel()
	delete(h.leases, at)
	h.mu.Unlock()
	l.observeLost(at, token)
	l.log.Warn("session lock lost", "key", at.key, "token", token, "client", h.Addr, "error", err)
	s.LockLost(at.key, token)
}

// forget ends the renewing of a lock that is no session lock any more.
func (h *Holder) forget(at lineKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ls := h.leases[at]; ls != nil {
		ls.cancel()
		delete(h.leases, at)
	}
}

// Gone releases what a connection that has closed can't have any more: its session locks, the locks whose tokens are Unreached, and those
// that it may have taken without hearing of it. It returns when that is done, or goes on in the background; see releaseOrphans.
func (l *Locks) Gone(h *Holder) {
	h.mu.Lock()
	leases := h.leases
	h.leases = nil
	for _, ls := range leases {
		ls.cancel()
	}
	h.mu.Unlock()
	var list []orphan
	for at, ls := range leases {
		list = append(list, orphan{at, ls.as, given(h.Connection, ls.token), l.longestLease(ls.timeout)})
	}
	for _, u := range h.lost {
		list = append(list, orphan{u.at, u.as, given(h.Connection, u.token), l.longestLease(l.cfg.MaxTimeout)})
	}
	l.releaseOrphans(append(list, h.unsure...)...)
}
