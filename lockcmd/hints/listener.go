package hints

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/slot"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/search"
)

// Listener hears from other proxies that a lock is reserved for the first waiter here, that they
// have released a lock of a holder here, and who waits there. It hears from the upstream, by CLIENT
// TRACKING, that the key of a lock has changed: a foreign client has released it, or somebody has
// deleted or overwritten it. So a waiter need not poll often next to foreign clients, a lost
// message delays no client, and a session is told at once that its lock is gone.
//
// The first waiter polls, too: a message may be lost. If the upstream has no CLIENT TRACKING, or a
// user may not use it or the channels, waiters poll and sessions learn by their next renewals.
type Listener struct {
	*background.Jobs
	queues    *queue.Queues
	sessions  *held.Sessions
	deadlocks *search.Deadlocks
	// unwanted releases a lock that is reserved for this proxy, where nobody waits for it any more.
	unwanted func(as names.Identity, id names.Lock)

	waits   []string      // the channels on which proxies tell who waits
	sharded atomic.Bool   // the upstream is a cluster whose nodes know SPUBLISH
	heard   []atomic.Bool // by place: messages about its locks come

	mu         sync.Mutex
	conns      map[names.Identity]*conn // guarded by mu; also of logins that were refused
	subscriber *conn                    // guarded by mu; nil if no user may subscribe, or need not
	apart      map[int]*conn            // guarded by mu; by place: see conn.apart
	channels   map[int]*channel         // guarded by mu; by place. They are wanted
	exceeded   map[string]bool          // guarded by mu; the bounds that were logged
}

const (
	// maxConns bounds the connections, and the users remembered as refused.
	maxConns = 64
	// trackingRetry is how long after a user was refused it is asked to track again.
	trackingRetry = 30 * time.Second
	// channelsRetry is how long after a user was refused it is asked to subscribe again.
	channelsRetry = time.Second
	// maxTracked bounds the keys of one connection.
	maxTracked = 10000
)

func NewListener(
	qs *queue.Queues, s *held.Sessions, deadlocks *search.Deadlocks,
	unwanted func(names.Identity, names.Lock),
) *Listener {
	places := 1
	if s.Scripts.Cluster {
		places = slot.Count
	}
	l := &Listener{Jobs: s.Jobs, queues: qs, sessions: s, deadlocks: deadlocks, unwanted: unwanted,
		waits: deadlocks.Channels(), heard: make([]atomic.Bool, places),
		conns: map[names.Identity]*conn{}, apart: map[int]*conn{}, channels: map[int]*channel{},
		exceeded: map[string]bool{}}
	l.sharded.Store(s.Scripts.Cluster)
	qs.Hears(func(key string) bool { return l.heard[l.place(key)].Load() })
	return l
}

// connLocked is the connection of a login in a database, maybe a new one that is not open. It is
// nil if there are too many. mu is held.
func (l *Listener) connLocked(as names.Identity) *conn {
	c := l.conns[as]
	if c != nil {
		return c
	}
	for other, one := range l.conns {
		if len(l.conns) >= maxConns && !one.serving {
			delete(l.conns, other)
		}
	}
	if len(l.conns) < maxConns {
		c = &conn{l: l, as: as, keys: map[string]trackedKey{}, more: make(chan struct{}, 1)}
		l.conns[as] = c
	}
	return c
}

// tellLocked logs once that a bound is exceeded. mu is held.
func (l *Listener) tellLocked(what string, bound int) {
	if !l.exceeded[what] {
		l.exceeded[what] = true
		l.Log.Warn(what+": changes of the others are noticed only by polls and renewals",
			"at_most", bound)
	}
}

// Want asks the upstream to report the next change of a lock's key. It returns at once.
func (l *Listener) Want(as names.Identity, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.connLocked(as)
	switch {
	case c == nil:
		l.tellLocked("more logins and databases have locks than can be tracked", maxConns)
	case c.resp2, time.Since(c.untracked) < trackingRetry, len(key) > maxTrackedName:
	case !c.wantLocked(key):
		l.tellLocked("a login has more locks in a database than can be tracked", maxTracked)
	}
}

// Follows reports whether the upstream reports the next change of a lock's key, and whether it soon
// will.
func (l *Listener) Follows(as names.Identity, key string) (now, soon bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conns[as]
	if c == nil {
		return false, false
	}
	tracked, known := c.keys[key]
	return tracked.now, c.tracks && known
}

// keysChanged makes the first waiters of these locks poll, unless it is the turn of foreign
// clients. For them, and for a session, it has the key tracked again.
func (l *Listener) keysChanged(as names.Identity, keys []string) {
	for _, key := range keys {
		id := names.Lock{DB: as.DB, Key: key}
		if again := l.queues.Of(id).KeyChanged(time.Now()); again || l.sessions.Has(id) {
			l.Want(as, key)
		}
	}
}

// keyTracked notes that a lock's key is tracked from now on. If the key is missing, the first
// waiter polls, after the turn of foreign clients; otherwise that turn is over. Sessions are
// verified: the key may have changed before.
func (l *Listener) keyTracked(as names.Identity, key string, missing bool) {
	id := names.Lock{DB: as.DB, Key: key}
	l.queues.Of(id).KeyTracked(missing, time.Now())
	l.sessions.VerifySessions(id.DB, []string{key}, held.Loss{})
}

// onMessage looks at what a message claims. Anybody who may use the channel can have sent it, so it
// costs no more than a look: the first waiter polls the lock that it names, not too often. If
// another proxy is said to have released a session lock, that lock is verified. If no client waits
// any more, a reservation is released, but only of a lock for which one has waited until lately.
// It also passes on messages about deadlocks.
func (l *Listener) onMessage(channel, message string) {
	if search.IsWaits(channel) {
		l.deadlocks.OnMessage(message)
		return
	}
	payload, lost := strings.CutPrefix(message, "lost:")
	hash, ok := names.ParseHash(payload)
	switch {
	case !ok:
	case lost:
		l.sessions.VerifyHash(hash, held.LostElsewhere)
	default:
		if id, as, left := l.queues.Reserved(hash, time.Now()); left {
			l.unwanted(as, id)
		}
	}
}
