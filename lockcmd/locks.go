package lockcmd

import (
	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/script"
)

// Locks runs the lock commands of one proxy. Make it with New, and end it with Close. It has the
// methods of its parts. Each part knows only those above it.
type Locks struct {
	common *common
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
	all := &common{cfg: cfg, Jobs: &background.Jobs{
		Scripts: script.NewMaker(script.Config{Proxy: proxy, Seconds: cfg.Seconds, Cluster: cfg.Cluster,
			Retention: cfg.FenceRetention, TakeoverGuard: cfg.TakeoverGuard,
			Confirm: cfg.confirmation()}),
		Log: log, Clients: background.NewClients(connect, cfg.Cluster), Timers: background.NewTimers(),
	}}
	qs, seen := newQueues(), newObserved(all)
	qs.ways = all.Clients.Ways
	l := &Locks{common: all, queues: qs, observed: seen}
	l.sessionLocks = &sessionLocks{common: all, seen: seen, keys: foreign.NewFilter()}
	l.foreignTraffic = newForeignTraffic(all, qs, seen)
	l.releases = &releases{common: all, queues: qs, seen: seen, sessions: l.sessionLocks}
	deadlocks := newDeadlocks(all.Jobs, cfg.Deadlock, qs, seen)
	l.notifications = newReleaseNotifications(l.releases, deadlocks)
	l.tracking = newKeyTracking(qs, l.sessionLocks)
	l.renewals = &renewals{
		common: all, seen: seen, sessions: l.sessionLocks,
		notifications: l.notifications, tracking: l.tracking, releases: l.releases,
	}
	l.locking = &locking{
		common: all, queues: qs, seen: seen, releases: l.releases, renewals: l.renewals,
		graces: newGracePeriods(all),
	}
	l.waits = &waits{l.locking, l.notifications, l.tracking, deadlocks}
	l.queries = &queries{common: all, queues: qs, seen: seen, traffic: l.foreignTraffic,
		releases: l.releases}
	return l
}

// Close ends what runs in the background and waits for its end. No command may be running.
func (l *Locks) Close() {
	l.common.Timers.Close()
	l.common.Clients.Close()
	if n := l.unreleased.Load(); n > 0 {
		l.common.Log.Warn("locks whose holders have gone could not be released: "+
			"they run until their timeouts", "locks", n)
	}
}
