package lockcmd

import (
	"container/list"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/foreign"
	"lockproxy/internal/journal"
)

// Config is what an operator decides about locks.
type Config struct {
	MaxTimeout     time.Duration // longest timeout that LOCK accepts
	FenceRetention time.Duration // how long a lock's last token is remembered after its end
	Seconds        bool          // write timestamps in seconds, rounded up, instead of ms
	Moves          bool          // another server may replace the upstream: waiters wait for it
	Cluster        bool          // the upstream is a Redis Cluster: locks on many servers
	Durability
	// History is how much memory may be used to remember what happened to locks, bytes; 0 is none.
	History  int64
	SlowWait time.Duration // log a client that has waited so long for a lock; 0 logs none
	Observer Observer      // nil is none
	// CanFence reports whether a command may run in a transaction that the proxy begins.
	CanFence func(command [][]byte) bool
}

const (
	// reservation is how long a released lock is kept for the first waiter of a notified proxy.
	reservation = 100 * time.Millisecond
	// pollReservation is how long it is kept for a proxy that cannot be notified: its first waiter
	// polls within maxPoll. The proxy must have waited for pollPatience, so that the lock is not
	// idle most of the time.
	pollReservation = 400 * time.Millisecond
	pollPatience    = 500 * time.Millisecond
)

// Session is the connection that a command came by. A command's context ends when the session has
// no use for the command any more: see ErrGone and ErrLost. To watch for that costs something. It
// begins with the first call of the context's Done, and ends when the command has been answered.
type Session interface {
	// Eval runs a script in the order of the session's requests.
	evaluator
	// Do sends commands of the proxy together, in the order of the session's requests, and returns
	// their replies as they came.
	Do(commands ...[][]byte) ([][]byte, error)
	Identity() Identity
	Holder() *Holder
	// LockLost tells the client that a session lock is lost. Any goroutine may call it.
	LockLost(key string, token int64)
}

// Locks is the lock commands of one proxy. Make it with New; Close ends what it has running.
type Locks struct {
	cfg           Config
	proxy         string // names this proxy among all, in records and channels
	log           hclog.Logger
	background    *backgroundClients
	timers        *timers
	notifications *releaseNotifications
	tracking      *keyTracking

	guard, retention string // ms, for the scripts

	waiters atomic.Int64 // for any lock
	holdOff holdOff

	foreignLocks *foreign.Locks  // of foreign clients
	waitedKeys   *foreign.Filter // of queues
	shapes       *foreign.Shapes // of their scripts

	observer Observer
	journal  *journal.Journal
	counters counters
	registry *registry
	sessions *sessionKeys
	slowWait atomic.Int64 // Config.SlowWait, ns
	slowLog  logLimit

	unreleased atomic.Int64 // locks that releaseLater is to release
	releaseLog logLimit

	mu        sync.Mutex
	queues    map[LockID]*waitQueue // guarded by mu; no queue is empty
	foreign   foreignClients        // guarded by mu
	takeovers map[LockID]*takeover  // guarded by mu; grace periods
	delayed   map[LockID]*list.List // guarded by mu; of *DelayedSet; no line is empty
}

// New returns the lock commands of the proxy that is named proxy. connect makes a client of the
// upstream for an identity.
func New(cfg Config, proxy string, connect func(Identity) *redis.Client, log hclog.Logger) *Locks {
	l := &Locks{
		cfg: cfg, proxy: proxy, log: log,
		guard: milliseconds(cfg.TakeoverGuard), retention: milliseconds(cfg.FenceRetention),
		queues:  map[LockID]*waitQueue{},
		foreign: foreignClients{},

		waitedKeys: foreign.NewFilter(), foreignLocks: foreign.NewLocks(), shapes: foreign.NewShapes(),
		takeovers: map[LockID]*takeover{},
		delayed:   map[LockID]*list.List{},
	}
	l.sessions = newSessionKeys(cfg.Cluster)
	l.SetSlowWait(cfg.SlowWait)
	l.journal = journal.New(cfg.History)
	l.setObserver(cfg.Observer)
	l.background = newBackgroundClients(connect, cfg.Cluster)
	l.timers = newTimers()
	l.notifications = newReleaseNotifications(l)
	l.tracking = newKeyTracking(l)
	return l
}

// Close ends what runs in the background and waits for its end. No command may be running.
func (l *Locks) Close() {
	l.timers.close()
	l.notifications.close()
	l.tracking.close()
	l.background.close()
	if n := l.unreleased.Load(); n > 0 {
		l.log.Warn("locks whose holders have gone could not be released: "+
			"they run until their timeouts", "locks", n)
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Waiting reports whether any client waits for a lock.
func (l *Locks) Waiting() bool { return l.waiters.Load() > 0 }

// jitter returns a duration between lo and hi.
func jitter(lo, hi time.Duration) time.Duration { return lo + rand.N(hi-lo) }
