package lockcmd

import (
	"context"
	"sync"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// graces repairs locks that were taken over here from foreign clients, while their grace periods
// run.
//
// LOCK takes over a lock whose timestamp has expired. A foreign client that has lost this race may
// write its own timestamp a moment later, before it knows. So only the lock record counts for a
// grace period, script.TakeoverGrace. repair.lua runs at repairTimes, on a background client, and
// puts the timestamp right.
type graces struct {
	*common
	mu        sync.Mutex
	takeovers map[names.Lock]*takeover // guarded by mu
}

// repairTimes are the times after a takeover at which the timestamp is checked. The loser mostly
// writes within a millisecond, seldom much later.
var repairTimes = []time.Duration{
	3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond,
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond,
	script.TakeoverGrace - 50*time.Millisecond,
}

// takeover is the grace period of one lock.
type takeover struct {
	as     names.Identity
	token  int64
	checks int    // how many have begun
	cancel func() // of the next check
}

// start begins to repair the timestamp of a lock that was taken over, as long as a foreign client
// that lost the race may replace it. It uses a background client: the holder's connection may be
// closed or busy. Another takeover begins again.
func (g *graces) start(as names.Identity, id names.Lock, token int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.takeovers[id]; old != nil {
		if old.checks == 0 {
			return
		}
		old.cancel()
	}
	t := &takeover{as: as, token: token}
	g.takeovers[id] = t
	g.repairAfterLocked(repairTimes[0], id, t)
}

// repairAfterLocked begins the next check after a time. mu is held.
func (g *graces) repairAfterLocked(pause time.Duration, id names.Lock, t *takeover) {
	t.cancel = g.Timers.After(pause, func(ctx context.Context) {
		g.mu.Lock()
		t.checks++
		g.mu.Unlock()
		more := g.repair(ctx, id, t)
		g.mu.Lock()
		defer g.mu.Unlock()
		switch {
		case g.takeovers[id] != t: // taken over again
		case more && t.checks < len(repairTimes):
			g.repairAfterLocked(repairTimes[t.checks]-repairTimes[t.checks-1], id, t)
		default:
			delete(g.takeovers, id)
		}
	})
}

// repair runs repair.lua. more says whether to check again.
func (g *graces) repair(ctx context.Context, id names.Lock, t *takeover) (more bool) {
	c := g.Scripts.Call(script.RepairScript, id.Key, script.NoFastPath, "")
	answer, err := g.Clients.On(ctx, t.as, id.Key, time.Now().Add(g.Clients.Patience())).Eval(&c)
	ints, err := c.Ints(1, answer, err)
	switch {
	case ctx.Err() != nil, err == nil && ints[0] == -1:
		return false
	case err != nil:
		g.Log.Warn("cannot check a lock that was taken over from a foreign client",
			"key", id.Key, "token", t.token, "error", err)
	case ints[0] == 1:
		g.Log.Info("the proxy has repaired the timestamp of a lock that a foreign client had "+
			"lost and overwritten", "key", id.Key, "token", t.token)
	}
	return true
}
