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
	takeovers sync.Map // of the last *takeover of each names.Lock that is looked after
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
	as    names.Identity
	id    names.Lock
	token int64
	at    time.Time
}

// start begins to repair the timestamp of a lock that was taken over, as long as a foreign client
// that lost the race may replace it. It uses a background client: the holder's connection may be
// closed or busy. Another takeover begins again.
func (g *graces) start(as names.Identity, id names.Lock, token int64) {
	t := &takeover{as, id, token, time.Now()}
	g.takeovers.Store(id, t)
	g.repairLater(t, 0)
}

// repairLater repairs the timestamp at one of the repairTimes, and then at those behind it.
func (g *graces) repairLater(t *takeover, check int) {
	g.Timers.After(time.Until(t.at.Add(repairTimes[check])), func(ctx context.Context) {
		if last, _ := g.takeovers.Load(t.id); last != t { // taken over again
			return
		}
		if more := g.repair(ctx, t); more && check+1 < len(repairTimes) {
			g.repairLater(t, check+1)
		} else {
			g.takeovers.CompareAndDelete(t.id, t)
		}
	})
}

// repair runs repair.lua. more says whether to check again.
func (g *graces) repair(ctx context.Context, t *takeover) (more bool) {
	c := g.Scripts.Call(script.RepairScript, t.id.Key, script.NoFastPath, "")
	answer, err := g.Clients.On(ctx, t.as, t.id.Key, time.Now().Add(g.Clients.Patience())).Eval(&c)
	ints, err := c.Ints(1, answer, err)
	switch {
	case ctx.Err() != nil, err == nil && ints[0] == -1:
		return false
	case err != nil:
		g.Log.Warn("cannot check a lock that was taken over from a foreign client",
			"key", t.id.Key, "token", t.token, "error", err)
	case ints[0] == 1:
		g.Log.Info("the proxy has repaired the timestamp of a lock that a foreign client had "+
			"lost and overwritten", "key", t.id.Key, "token", t.token)
	}
	return true
}
