package hints

import (
	"sync"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
)

// Tracking learns by CLIENT TRACKING that the key of a lock has changed: a foreign client has
// released it, or somebody has deleted or overwritten it. So a waiter need not poll often next to
// foreign clients, a lost message delays no client, and a session is told at once that its lock is
// gone.
//
// Each user and database that needs it has a connection. It reads keys by EXISTS, and the upstream
// reports the next change of each. A connection that is lost is opened again at once, and reads its
// keys again. If the upstream has no CLIENT TRACKING, or the user may not use it, waiters poll and
// sessions learn by their next renewals. In a cluster the connection goes to each node with such a
// key.
type Tracking struct {
	*background.Jobs
	queues   *queue.Queues
	sessions *held.Sessions

	mu       sync.Mutex
	conns    map[names.Identity]*trackingConn // guarded by mu
	refused  map[names.Identity]time.Time     // guarded by mu; when it was last refused
	exceeded map[string]bool                  // guarded by mu; the bounds that were logged
}

const (
	// maxTracking bounds the connections, and the users remembered as refused.
	maxTracking = 64
	// trackingRetry is how long after a user was refused the next connection is tried.
	trackingRetry = 30 * time.Second
	// maxTracked bounds the keys of one connection.
	maxTracked = 10000
)

func NewTracking(qs *queue.Queues, s *held.Sessions) *Tracking {
	return &Tracking{
		Jobs: s.Jobs, queues: qs, sessions: s,
		conns: map[names.Identity]*trackingConn{}, refused: map[names.Identity]time.Time{},
		exceeded: map[string]bool{},
	}
}

// Want asks the upstream to report the next change of a lock's key. It returns at once.
func (k *Tracking) Want(as names.Identity, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.conns[as]
	if c == nil {
		if time.Since(k.refused[as]) < trackingRetry {
			return
		}
		if len(k.conns) >= maxTracking {
			k.tellLocked("more logins and databases have locks than can be tracked", maxTracking)
			return
		}
		c = &trackingConn{by: k, as: as, tracked: map[string]trackedKey{},
			more: make(chan struct{}, 1)}
		k.conns[as] = c
		k.Timers.After(0, c.serve) // ends when it isn't needed, or is refused
	}
	if !c.want(key) {
		k.tellLocked("a login has more locks in a database than can be tracked", maxTracked)
	}
}

// tellLocked logs once that a bound is exceeded. mu is held.
func (k *Tracking) tellLocked(what string, bound int) {
	if !k.exceeded[what] {
		k.exceeded[what] = true
		k.Log.Warn(what+": changes of the others are noticed only by polls and renewals",
			"at_most", bound)
	}
}

// Follows reports whether the upstream reports the next change of a lock's key, and whether it soon
// will.
func (k *Tracking) Follows(as names.Identity, key string) (now, soon bool) {
	k.mu.Lock()
	c := k.conns[as]
	k.mu.Unlock()
	if c == nil {
		return false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tracked, soon := c.tracked[key]
	return c.up && tracked.now, c.up && soon
}

// refuse notes that a user may not track.
func (k *Tracking) refuse(as names.Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.refused) >= maxTracking {
		clear(k.refused)
	}
	k.refused[as] = time.Now()
}

// keyChanged makes the first waiter poll, unless it is the turn of foreign clients. For them, and
// for a session, it has the key tracked again.
func (k *Tracking) keyChanged(as names.Identity, key string) {
	id := names.Lock{DB: as.DB, Key: key}
	if again := k.queues.Of(id).KeyChanged(time.Now()); again || k.sessions.Has(id) {
		k.Want(as, key)
	}
}

// keyTracked notes that a lock's key is tracked from now on. If the key is missing, the first
// waiter polls, after the turn of foreign clients; otherwise that turn is over. Sessions are
// verified: the key may have changed before.
func (k *Tracking) keyTracked(as names.Identity, key string, missing bool) {
	id := names.Lock{DB: as.DB, Key: key}
	k.queues.Of(id).KeyTracked(missing, time.Now())
	k.sessions.VerifySessions(id.DB, []string{key}, held.Loss{})
}
