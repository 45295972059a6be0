// Package lockcmd is the lock commands: what they accept, what they do upstream, what they answer.
//
// A lock is a timestamp lock. The key holds the time at which the lock expires, as programs with SETNX recipes have always
// written it, so that they and LOCK exclude one another; a companion key beside it holds the token, the owner and the times.
// Each step is one Lua script, atomic, by the upstream's clock alone; see scripts/.
//
// Guarantees, as long as the upstream keeps what it has acknowledged:
//
//   - A lock that LOCK took is its holder's until its timeout, UNLOCK or DEL of its key; nobody else is given a token before.
//   - The tokens of a key strictly increase, while its companion lives (--fence-retention) or the upstream's clock doesn't step back.
//   - UNLOCK frees only the lock of the token, or the connection, that it names.
//   - Waiters are served in order of arrival at one proxy. Proxies take turns, each serving those who waited when its turn began.
//   - A key that holds something else is left untouched.
//
// Not guaranteed: that work stops when a lock has expired under it. An upstream that loses writes in a failover loses locks with them, but
// for what Durability asks for: see docs/durability.md.
//
// A client's own steps run on its own connection, by way of Session: as its user, on its database, in its order. What must
// happen while that connection is busy or gone (renewing and releasing session locks, looking after a lock that was taken over)
// runs on connections of the proxy's own, logged in as the same client; see chores.
package lockcmd

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
)

// Config is what an operator decides about locks.
type Config struct {
	MaxTimeout     time.Duration // longest timeout that LOCK accepts
	FenceRetention time.Duration // how long a lock's last token is remembered after its end
	Seconds        bool          // write timestamps in seconds, rounded up, instead of ms
	Moves          bool          // another server may take the upstream's place: waiters wait for it
	Cluster        bool          // the upstream is a Redis Cluster: locks are in many servers, by slot
	Durability
	SlowWait time.Duration // log a client that has waited so long for a lock; 0 logs none
	Observer Observer      // nil is nobody
	// CanFence reports whether a command may run within a transaction of the proxy's own.
	CanFence func(command [][]byte) bool
}

const (
	// reservation is how long a released lock is kept for the first waiter of a proxy that has been told.
	reservation = 100 * time.Millisecond
	// pollReservation is how long it is kept for one that can't be told, whose first waiter polls within maxPoll and the time that
	// the poll takes. So that the lock isn't idle for most of the time, that is done only once the proxy has waited for deafPatience.
	pollReservation = 400 * time.Millisecond
	pollPatience    = 500 * time.Millisecond
)

// Session is the connection that a command came by. A command runs with a context that ends when the
// session has no use for it any more, see ErrGone and ErrLost. To watch for that may cost something: it
// begins with the first call of Done, and the session ends it when the command has been answered.
type Session interface {
	// Eval runs a script in the session's turn.
	evaluator
	// Do sends commands of the proxy's own together, in the session's turn, and returns their replies
	// as they came.
	Do(commands ...[][]byte) ([][]byte, error)
	Identity() Identity
	Holder() *Holder
	// LockLost tells the client that a session lock has been lost. It may be called from any goroutine.
	LockLost(key string, token int64)
}

// Locks is the lock commands of one proxy. Make it with New; Close ends what it has running.
type Locks struct {
	cfg           Config
	proxy         string // names this proxy among all, in companions and channels
	log           hclog.Logger
	background    *backgroundClients
	timers        *timers
	notifications *releaseNotifications

	guard, retention string // the two durations that every script is told, ms

	waiters atomic.Int64 // all over; for a cheap answer to Waiting
	holdOff holdOff

	observer Observer
	counters counters
	registry *registry
	slowWait atomic.Int64 // see Config.SlowWait, ns
	slowLog  logLimit

	unreleased atomic.Int64 // locks whose holders have gone, which are released later: see releaseLater
	releaseLog logLimit

	mu        sync.Mutex
	queues    map[LockID]*waitQueue // guarded by mu; no line is empty
	foreign   foreignClients        // guarded by mu
	takeovers map[LockID]*takeover  // guarded by mu; locks taken over here lately
}

// New returns the lock commands of the proxy that is named proxy. connect makes a client of the upstream for an identity.
func New(cfg Config, proxy string, connect func(Identity) *redis.Client, log hclog.Logger) *Locks {
	l := &Locks{
		cfg: cfg, proxy: proxy, log: log,
		guard: milliseconds(cfg.TakeoverGuard), retention: milliseconds(cfg.FenceRetention),
		queues: map[LockID]*waitQueue{}, foreign: foreignClients{}, takeovers: map[LockID]*takeover{},
	}
	l.SetSlowWait(cfg.SlowWait)
	l.setObserver(cfg.Observer)
	l.background = newBackgroundClients(connect, cfg.Cluster)
	l.timers = newTimers()
	l.notifications = newReleaseNotifications(l)
	return l
}

// Close ends what runs in the background, and returns when it has ended. No command may be running.
func (l *Locks) Close() {
	l.timers.close()
	l.notifications.close()
	l.background.close()
	if n := l.unreleased.Load(); n > 0 {
		l.log.Warn("locks whose holders have gone could not be released: they run until their timeouts", "locks", n)
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Waiting reports whether anybody waits for any lock.
func (l *Locks) Waiting() bool { return l.waiters.Load() > 0 }

// jitter returns a duration between lo and hi.
func jitter(lo, hi time.Duration) time.Duration { return lo + rand.N(hi-lo) }
