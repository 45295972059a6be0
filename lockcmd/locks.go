package lockcmd

import (
	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// Locks runs the lock commands of one proxy. Make it with New, and end it with Close. It has the
// methods of its parts. Each part knows only those above it.
type Locks struct {
	*background
	*queues
	*observed
	*sessionLocks
	*foreignTraffic
	*releases
	notifications *releaseNotifications
	tracking      *keyTracking
	*renewals
	*locking
	*waits
	*queries
}

// New returns the lock commands of the proxy with this name. connect makes a client of the upstream
// for an identity.
func New(
	cfg Config, proxy string, connect func(names.Identity) *redis.Client, log hclog.Logger,
) *Locks {
	bg := &background{
		cfg: cfg, log: log,
		scripts: script.NewMaker(script.Config{Proxy: proxy, Seconds: cfg.Seconds, Cluster: cfg.Cluster,
			Retention: cfg.FenceRetention, TakeoverGuard: cfg.TakeoverGuard,
			Confirm: cfg.confirmation()}),
		clients: newBackgroundClients(connect, cfg.Cluster), timers: newTimers(),
	}
	qs, seen := newQueues(), newObserved(bg)
	qs.ways = bg.clients.ways
	l := &Locks{background: bg, queues: qs, observed: seen}
	l.sessionLocks = &sessionLocks{background: bg, seen: seen, keys: foreign.NewFilter()}
	l.foreignTraffic = newForeignTraffic(bg, qs, seen)
	l.releases = &releases{background: bg, queues: qs, seen: seen, sessions: l.sessionLocks}
	deadlocks := newDeadlocks(qs, seen)
	l.notifications = newReleaseNotifications(l.releases, deadlocks)
	l.tracking = newKeyTracking(qs, l.sessionLocks)
	l.renewals = &renewals{
		background: bg, seen: seen, sessions: l.sessionLocks,
		notifications: l.notifications, tracking: l.tracking, releases: l.releases,
	}
	l.locking = &locking{
		background: bg, queues: qs, seen: seen, releases: l.releases, renewals: l.renewals,
		graces: newGracePeriods(bg),
	}
	l.waits = &waits{l.locking, l.notifications, l.tracking, deadlocks}
	l.queries = &queries{background: bg, queues: qs, seen: seen, traffic: l.foreignTraffic,
		releases: l.releases}
	return l
}

// Close ends what runs in the background and waits for its end. No command may be running.
func (l *Locks) Close() {
	l.timers.close()
	l.clients.close()
	if n := l.unreleased.Load(); n > 0 {
		l.log.Warn("locks whose holders have gone could not be released: "+
			"they run until their timeouts", "locks", n)
	}
}
