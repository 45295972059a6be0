package search

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
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
	// A search starts from a wait that has lasted for firstSearch, and again after each of these
	// until youngWait, since messages between proxies can be lost. Then it starts after each
	// nextSearch: most deadlocks are closed by a wait that begins. Where the upstream is far, as
	// long as a search takes is added.
	firstSearch   = 300 * time.Millisecond
	youngWait     = 2 * time.Second
	nextSearch    = 500 * time.Millisecond
	searchTick    = 100 * time.Millisecond
	searchTimeout = 30 * time.Second // also where each proxy is 500 ms from the upstream
	maxConfirm    = 3                // second searches for an apparent cycle: an answer can be lost
	maxSearch     = 256              // awaited keys from which a search starts, or that it finds
	maxWaitName   = 1024             // bytes of a key or an owner, beyond which a wait is not searched
	maxBlockers   = 128              // holders that a search follows, for one wait
)

// Deadlocks finds cycles of owners that wait for each other's locks.
//
// A new wait is checked at once against what this proxy knows: the waits here, and the registry. If
// a wait lasts, a search starts in the background. It asks the upstream who has the lock and who
// asked for it earlier, and the other proxies whether those wait there. An apparent cycle counts
// only if a search that begins after it was found finds the same waits and tokens: so all of the
// cycle existed at one time, since a lock that is lost is never held again with the same token. The
// proxy of the youngest wait finds the cycle, and refuses that wait.
//
// Whatever another proxy says is a claim. In the second search it counts only if the record of the
// key confirms it, for the login whose wait it is: see vouch.
type Deadlocks struct {
	*background.Jobs
	mode   string // Refuse, Log or Off
	queues *queue.Queues
	locks  *held.Registry
	// onFound notes a deadlock.
	onFound func()

	logins    logins
	answering atomic.Int32 // questions from other proxies that are being answered
	asked     askedBefore  // questions that have come

	mu       sync.Mutex
	of       map[string][]*watchedWait // guarded by mu; by the owner's hash; no list is empty
	last     int64                     // guarded by mu; the id of the last question
	ticking  bool                      // guarded by mu
	searches map[string]chan claim     // guarded by mu; where answers go, by question
	answers  budget                    // guarded by mu
	recent   []Deadlock                // guarded by mu; the last ones, the oldest first
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

// watchedWait is a LOCK or LOCKALL that waits.
type watchedWait struct {
	*queue.Wait
	id    string
	since int64
	owner string    // the hash of its owner
	next  time.Time // when a search starts from it; guarded by Deadlocks.mu
	found bool      // it closes a deadlock; guarded by Deadlocks.mu
}

func newWatchedWait(w *queue.Wait) *watchedWait {
	return &watchedWait{Wait: w, id: w.RequestID(), since: w.Joined.UnixNano(),
		owner: hash("owner", w.Lead.Owner)}
}

// idsOf are the IDs of waits.
func idsOf(list []*watchedWait) (ids []string) {
	for _, v := range list {
		ids = append(ids, v.id)
	}
	return ids
}

// New returns the search. inUse is an identity with the password that is in use: see logins.
func New(
	bg *background.Jobs, mode string, qs *queue.Queues, locks *held.Registry,
	inUse func(names.Identity) names.Identity, onFound func(),
) *Deadlocks {
	return &Deadlocks{
		Jobs: bg, mode: mode, queues: qs, locks: locks, onFound: onFound,
		of: map[string][]*watchedWait{}, searches: map[string]chan claim{}, logins: logins{inUse: inUse},
	}
}

func (d *Deadlocks) off() bool { return d.mode == Off }

// tooLong reports whether a key or an owner is too long for messages.
func tooLong(w *queue.Wait) bool {
	return slices.ContainsFunc(w.Waiters, func(w *queue.Waiter) bool {
		return len(w.Owner) > maxWaitName || len(w.Key) > maxWaitName
	})
}

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

// waitsOf returns the waits here of some owners, by their hashes.
func (d *Deadlocks) waitsOf(owners []string) (list []*watchedWait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, owner := range owners {
		list = append(list, d.of[owner]...)
	}
	return list[:min(len(list), maxSearch)]
}
