package search

import (
	"slices"
	"sync"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
)

// The values of Config.Deadlock. "" is DeadlockRefuse.
const (
	Refuse = "refuse" // its youngest wait is answered DEADLOCK
	Log    = "log"    // it is logged and counted
	Off    = "off"    // it is not searched for
)

const (
	// A wait that has lasted for firstSearch is told to other proxies, and searched from, and again
	// after each of these until youngWait, since messages between proxies can be lost. Then that is
	// done at each nextSearch: most deadlocks are closed by a wait that begins.
	firstSearch = 300 * time.Millisecond
	youngWait   = 2 * time.Second
	nextSearch  = 500 * time.Millisecond
	searchTick  = 100 * time.Millisecond
	maxSearch   = 256  // awaited keys that are told and searched from, or found
	maxWaitName = 1024 // bytes of a key or an owner, beyond which a wait is not searched
	maxBlockers = 128  // holders that a search follows, for one wait
)

// Deadlocks finds cycles of owners that wait for each other's locks.
//
// Each proxy tells the others which clients wait there, as long as they do. A new wait is checked
// at once against what this proxy knows by itself: the waits here, and the registry. If a wait
// lasts, a search starts in the background. It asks the upstream who has the lock and who asked for
// it earlier, and looks for those among the waits here and those that are told. An apparent cycle
// counts only if a search that begins after it was found finds the same waits and tokens. Then all
// of the cycle existed at one time, since a lock that is lost is never held again with the same
// token. The second search has the other proxies tell of these waits again. The proxy of the
// youngest wait finds the cycle, and refuses that wait.
//
// The messages of other proxies are claims: see deadlockSearch.link.
type Deadlocks struct {
	*background.Jobs
	mode   string // Refuse, Log or Off
	queues *queue.Queues
	locks  *held.Registry
	// onFound notes a deadlock.
	onFound func()

	logins logins

	mu      sync.Mutex
	watched map[*queue.Wait]*watchedWait      // guarded by mu
	of      map[deadlock.Binary][]*queue.Wait // guarded by mu; those of watched, by owner
	ticking bool                              // guarded by mu
	asked   map[names.Identity]*asking        // guarded by mu; by login
	told    told                              // guarded by mu
	news    chan struct{}                     // guarded by mu; closed when something is told
	last    int64                             // guarded by mu; the number of the last message
	recent  []Deadlock                        // guarded by mu; the last ones, the oldest first
}

// Deadlock is one that this proxy has found.
type Deadlock struct {
	When          time.Time
	names.Lock           // that its youngest wait is for
	Owner, Client string // of the youngest wait
	Cycle         string // all its owners and keys
}

// maxRecent bounds the deadlocks that are remembered.
const maxRecent = 20

// watchedWait is a wait that is told to other proxies, and searched from if it has an owner.
type watchedWait struct {
	id    string
	next  time.Time // when that is done; guarded by Deadlocks.mu
	until time.Time // for one without an owner, which can be before one that has; guarded by Deadlocks.mu
	found bool      // it closes a deadlock; guarded by Deadlocks.mu
}

// New returns the search. inUse is an identity with the password that is in use: see logins.
func New(
	bg *background.Jobs, mode string, qs *queue.Queues, locks *held.Registry,
	inUse func(names.Identity) names.Identity, onFound func(),
) *Deadlocks {
	return &Deadlocks{
		Jobs: bg, mode: mode, queues: qs, locks: locks, onFound: onFound,
		logins:  logins{inUse: inUse, after: bg.Timers.After},
		watched: map[*queue.Wait]*watchedWait{}, of: map[deadlock.Binary][]*queue.Wait{},
		asked: map[names.Identity]*asking{}, told: newTold(), news: make(chan struct{}),
	}
}

func (d *Deadlocks) off() bool { return d.mode == Off }

// Found returns the last ones that this proxy has found since a time, the newest first.
func (d *Deadlocks) Found(since time.Time) []Deadlock {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(d.recent), func(one Deadlock) bool {
		return one.When.Before(since)
	})
	slices.Reverse(list)
	return list
}
