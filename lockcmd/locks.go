package lockcmd

import (
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/foreign"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/hints"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/search"
	"lockproxy/lockcmd/syntax"
)

// Locks runs the lock commands of one proxy. Make it with New, and end it with Close. It has the
// methods of its parts. Each part knows only those above it.
type Locks struct {
	common *common
	queues *queue.Queues
	*observed
	*held.Sessions
	*traffic
	*releases
	listener *hints.Listener
	renewals *held.Renewals
	*locking
	*waits
	places *places
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
	qs, seen := queue.New(all.Clients.Ways), newObserved(all)
	l := &Locks{common: all, queues: qs, observed: seen}
	l.Sessions = held.NewSessions(all.Jobs, seen.registry, &qs.Keys, seen.observeLost)
	l.traffic = &traffic{all, qs, seen.registry, foreign.NewLocks(seen.journal, &qs.Keys)}
	l.releases = &releases{common: all, queues: qs, seen: seen, sessions: l.Sessions}
	deadlocks := search.New(all.Jobs, cfg.Deadlock, qs, seen.registry, cfg.InUse,
		func() { seen.counters.Deadlocks.Add(1) })
	l.listener = hints.NewListener(qs, l.Sessions, deadlocks,
		func(as names.Identity, id names.Lock) { l.releases.waitsNoMore(as, id, true) })
	l.renewals = held.NewRenewals(l.Sessions, l.listener.Listen, l.listener.Want,
		func(lock *held.Lock) { l.releases.startRelease(lock, func() {}) })
	l.locking = &locking{
		common: all, queues: qs, seen: seen, releases: l.releases, renewals: l.renewals,
		graces: &graces{common: all},
	}
	l.waits = &waits{l.locking, l.listener, deadlocks}
	l.places = &places{waits: l.waits, of: map[placeID]*place{}}
	l.queries = &queries{common: all, queues: qs, seen: seen, traffic: l.traffic,
		releases: l.releases, listener: l.listener}
	return l
}

// Waiting reports whether any client waits for a lock.
func (l *Locks) Waiting() bool { return l.queues.Waiting() }

// MayMatter reports whether a key may be that of a session lock, of one for which clients wait
// here, or of one that a foreign client may hold. It is cheap; false is certain.
func (l *Locks) MayMatter(key []byte) bool { return l.queues.Keys.May(key) }

// Waiters returns up to limit of the clients that wait for a lock at this proxy, in order.
func (l *Locks) Waiters(id names.Lock, limit int) []queue.Entry {
	return l.queues.Of(id).Waiters(limit)
}

// Deadlocks returns the last ones that this proxy has found since a time, the newest first.
func (l *Locks) Deadlocks(since time.Time) []search.Deadlock { return l.deadlocks.Found(since) }

// WaitsFor is the key of the lock that a client waits for, of a LOCKALL's the first.
func (l *Locks) WaitsFor(h *held.Holder) (key string, waits bool) {
	return l.queues.WaitsFor(h.Connection)
}

// Unblock ends the wait of a client's LOCK or LOCKALL. It reports whether the client still waited.
// If the lock is on its way, it is released.
func (l *Locks) Unblock(h *held.Holder, withError bool) bool {
	return l.queues.Unblock(h.Connection, withError)
}

// begin makes the first Step of a request, by the name of its command. args are without the name.
var begin = map[string]func(l *Locks, c Client, args [][]byte) *Step{
	"lock": (*Locks).beginLock, "lockall": (*Locks).beginLockAll,
	"unlock": (*Locks).beginUnlock, "unlockall": (*Locks).beginUnlockAll,
	"relock": (*Locks).beginRelock, "fence": (*Locks).beginFence,
	"lockinfo": (*Locks).beginInfo, "lockscan": (*Locks).beginScan,
	"locktop": (*Locks).beginTop, "locklog": (*Locks).beginLog,
	"once": (*Locks).beginOnce, "done": (*Locks).beginDone,
}

// Begin returns the first Step of a request. It must be finished, and Steps of one client in the
// order in which they were begun. args begin with the name, and CheckArity must have accepted them.
func (l *Locks) Begin(c *syntax.Spec, client Client, args [][]byte) *Step {
	if c.IsHelp(args) {
		return &Step{Finish: func(script.Answer, error) (Reply, *Step) { return help(), nil }}
	}
	return begin[c.Name](l, client, args[1:])
}

// help is LOCK HELP, in the form of Redis's own HELP subcommands.
func help() Reply {
	lines := resp.Array()
	for text := range strings.Lines(syntax.HelpText()) {
		lines.Elems = append(lines.Elems, resp.Status(strings.TrimSuffix(text, "\n")))
	}
	return valueReply(lines)
}

// Close ends what runs in the background and waits for its end. No command may be running.
func (l *Locks) Close() {
	over, end := l.releases.patience()
	l.places.leave(over)
	end()
	l.common.Timers.Close()
	l.common.Clients.Close()
	if n := l.unreleased.Load(); n > 0 && l.releases.seen.hasServed() {
		l.common.Log.Warn("locks whose holders have disconnected could not be released: they are "+
			"held until their timeouts", "locks", n)
	}
}

// FailedOver says that another server is about to become the upstream. It may lack the last locks
// of the old one. Any goroutine can call it, and it does not block.
func (l *Locks) FailedOver() {
	l.common.holdOff.Store(monotonic.Now() + int64(l.common.cfg.FailoverHold))
}

// beginLock is LOCK.
func (l *Locks) beginLock(c Client, args [][]byte) *Step {
	o, err := syntax.ParseLock(args[1:], l.common.cfg.MaxTimeout)
	if err == nil {
		err = l.permit(o)
	}
	if err != nil {
		return refusedStep(err)
	}
	r := c.Request(string(args[0]), o.Request)
	switch {
	case o.Waits:
		return &Step{Finish: func(script.Answer, error) (Reply, *Step) { return l.waitStep(c, r, o.Wait) }}
	case o.Place > 0:
		return &Step{Finish: func(script.Answer, error) (Reply, *Step) { return l.places.placeStep(c, r, o.Place) }}
	}
	rs := lockRequests{r}
	return l.tryStep(c, rs, false, func(a script.Attempt, err error) (Reply, *Step) {
		return l.tried(c, rs, a, err)
	})
}

func (l *Locks) beginUnlock(c Client, args [][]byte) *Step {
	p, err := syntax.ParseProof(args[1:], c.Connection)
	if err != nil {
		return refusedStep(err)
	}
	id := names.Lock{DB: c.As.DB, Key: string(args[0])}
	c.Suspend(id, p)
	r := l.beginRelease(c.Holder, id, c.As, p, true)
	return l.releaseStep(r, func(released bool, err error) Reply {
		l.renewals.Unlocked(c.Holder, id, p, r.token, released)
		switch {
		case err != nil:
			return errorReply(l.notForced(id, err))
		case released:
			return valueReply(resp.Int(1))
		}
		return valueReply(resp.Int(0))
	})
}

// beginInfo is LOCKINFO.
func (l *Locks) beginInfo(client Client, args [][]byte) *Step {
	o, err := syntax.ParseInfo(args[1:])
	if err != nil {
		return refusedStep(err)
	}
	key, reply, asked := string(args[0]), l.infoReply, []string(nil)
	switch o.What {
	case "HOLDERS":
		reply, asked = holdersReply, []string{"holders", strconv.Itoa(syntax.MaxCount)}
	case "WAITERS":
		reply, asked = l.waitersReply, []string{"waiters"}
	}
	if o.Waits {
		return l.changedStep(client, key, o)
	}
	c := l.infoCall(key, asked...)
	return &Step{Asks: Script{&c}, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		return reply(names.Lock{DB: client.As.DB, Key: key}, answer.Value, answer.Failure(err)), nil
	}}
}
