package search

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// holding says who has a lock, and who has asked for it at other proxies.
type holding struct {
	shared bool
	by     []deadlock.Holder
	count  int   // of all holders, if the lock is shared
	free   bool  // no client has it, and it is not reserved
	token  int64 // the last one, if it is free
	listed []lockinfo.Proxy
	known  bool // the upstream has answered
}

// registered finds the holders of the locks that waits are for, if this proxy has given them.
func (d *Deadlocks) registered(list []*watchedWait) map[*queue.Waiter]*holding {
	found := map[*queue.Waiter]*holding{}
	for _, v := range list {
		for _, w := range v.Waiters {
			h := &holding{}
			d.locks.Visit(w.ID(), func(lock *held.Lock) {
				h.shared = lock.Shared
				h.by = append(h.by,
					deadlock.Holder{Owner: deadlock.Binary(lock.Owner), Token: lock.Token})
			})
			found[w] = h
		}
	}
	return found
}

// heldWithin is how long a search waits for the holders of a lock, and for a few round trips to a
// far upstream. It goes on without those that are not known by then.
const heldWithin = 500 * time.Millisecond

// lockAs is a lock, and who asks about it.
type lockAs struct {
	as  names.Identity
	key string
}

// held asks the upstream for the holders of the locks that waits are for, as their clients.
func (d *Deadlocks) held(list []*watchedWait) map[*queue.Waiter]*holding {
	var locks []lockAs
	for _, v := range list {
		for _, w := range v.Waiters {
			locks = append(locks, lockAs{w.As, w.Key})
		}
	}
	asked, found := d.askAll(locks), map[*queue.Waiter]*holding{}
	for _, v := range list {
		for _, w := range v.Waiters {
			found[w] = asked[lockAs{w.As, w.Key}]
		}
	}
	return found
}

// askAll asks the upstream for the holders of locks, each once.
func (d *Deadlocks) askAll(locks []lockAs) map[lockAs]*holding {
	loopguard.MayWait()
	asked := map[lockAs]*holding{}
	var asking sync.WaitGroup
	for _, lock := range locks {
		if asked[lock] == nil {
			h := &holding{}
			asked[lock] = h
			asking.Go(func() { *h = d.askHolders(lock) }) // ends within heldWithin
		}
	}
	asking.Wait()
	return asked
}

func (d *Deadlocks) askHolders(lock lockAs) (h holding) {
	until := time.Now().Add(heldWithin + 4*d.Clients.Ways.RoundTrip(lock.key))
	on := d.Clients.On(d.Timers.Ctx, lock.as, lock.key, until)
	got, err := d.Ask(on, script.InfoScript, lock.key, "holders", strconv.Itoa(maxBlockers))
	if err != nil || len(got.Elems) != 4 {
		return h
	}
	h.known = true
	h.listed = lockinfo.ReadProxies(got.Elems)
	h.token = got.Elems[2].Int
	h.free = h.token >= 0
	for _, elem := range got.Elems[3].Elems {
		if info, ok := lockinfo.Read(elem); ok {
			h.shared, h.count = info.Mode == "shared", info.Holders
			h.by = append(h.by,
				deadlock.Holder{Owner: deadlock.Binary(info.Owner), Token: info.Token})
		}
	}
	return h
}

// lists reports whether a proxy has waiters for the lock.
func (h holding) lists(proxy string) bool {
	return slices.ContainsFunc(h.listed, func(p lockinfo.Proxy) bool { return p.Name == proxy })
}

// locksOf are those that claims are about.
func locksOf(claims []claim) (locks []lockAs) {
	for _, c := range claims {
		for _, k := range c.wait.Keys {
			locks = append(locks, lockAs{c.as, string(k.Key)})
		}
	}
	return locks
}

// readSoon begins to read the records of the keys of claims, and returns what waits for them.
func (d *Deadlocks) readSoon(claims []claim) (records func() map[lockAs]*holding) {
	read := make(chan map[lockAs]*holding, 1)
	locks := locksOf(claims)
	d.Timers.After(0, func(context.Context) { read <- d.askAll(locks) }) // ends within heldWithin
	return sync.OnceValue(func() map[lockAs]*holding {
		select {
		case found := <-read:
			return found
		case <-d.Timers.Ctx.Done():
			return nil
		}
	})
}

// vouch takes out of claims what the records of their keys do not confirm. The records are read as
// the logins that have made the claims, by a script that needs the right to write: so a login says
// nothing of a lock for which it could not wait itself. The proxy must be listed as one that has
// waiters, and holders must have their tokens.
func (d *Deadlocks) vouch(claims []claim, asked map[lockAs]*holding) {
	rest := d.askAll(slices.DeleteFunc(locksOf(claims), func(lock lockAs) bool {
		return asked[lock] != nil
	}))
	for _, c := range claims {
		for i, k := range c.wait.Keys {
			lock := lockAs{c.as, string(k.Key)}
			h := cmp.Or(asked[lock], rest[lock])
			if !h.lists(c.wait.Proxy) {
				c.wait.Keys[i] = deadlock.KeyWait{Key: k.Key}
				continue
			}
			c.wait.Keys[i].Enough = max(k.Enough, 1)
			c.wait.Keys[i].Holders = slices.DeleteFunc(k.Holders,
				func(by deadlock.Holder) bool { return !slices.Contains(h.by, by) })
			c.wait.Keys[i].Before = slices.DeleteFunc(k.Before,
				func(e deadlock.Earlier) bool { return !h.lists(e.Proxy) })
		}
	}
}

// readable hides the keys of a cycle that a client may not read. of are the logins of the waits.
func (d *Deadlocks) readable(
	as names.Identity, cycle []deadlock.Step, of map[string]names.Identity,
) []deadlock.Step {
	cycle = slices.Clone(cycle)
	login := d.logins.loginOf(as)
	own := func(step deadlock.Step) bool { return of[step.ID] == login }
	lockOf := func(step deadlock.Step) lockAs {
		as := as
		as.DB = step.DB
		return lockAs{as, string(step.Key)}
	}
	var locks []lockAs
	for _, step := range cycle {
		if !own(step) {
			locks = append(locks, lockOf(step))
		}
	}
	asked := d.askAll(locks)
	for i, step := range cycle {
		cycle[i].Hidden = !own(step) && !asked[lockOf(step)].known
	}
	return cycle
}

// before returns the waits at other proxies that go before all waiters for a lock here, by the
// rules of lock.lua and unlock.lua. AllSince is since when the first waiter here
// waits, if it is a LOCKALL.
//
// A free lock is kept for the LOCKALL that has waited longest. Nobody shares a lock behind a waiter
// that is exclusive or has a limit. But a release here can overtake such a waiter, unless it is
// exclusive and the first of all. So it counts only if no holder can release.
func (h holding) before(proxy string, allSince int64) (list []deadlock.Earlier) {
	since := int64(math.MaxInt64) // when the first waiter here came, as LOCKALL counts it
	for _, p := range h.listed {
		if p.Name == proxy {
			since = p.Since
		}
	}
	since = cmp.Or(allSince, since)
	for i, p := range h.listed {
		add := func(e deadlock.Earlier) {
			e.Proxy = p.Name
			list = append(list, e)
		}
		switch {
		case h.shared && p.Name == proxy:
			return list
		case h.shared && p.How.Exclusive() && i == 0:
			add(deadlock.Earlier{As: deadlock.AsExclusive, Holders: 1, Listed: p.Since})
		case h.shared && p.How.Exclusive():
			add(deadlock.Earlier{As: deadlock.AsExclusive, Holders: h.count, Listed: p.Since})
		case h.shared && !p.How.Unlimited():
			add(deadlock.Earlier{As: deadlock.AsLimit, Holders: h.count, Listed: p.Since})
		case h.free && p.How.All() && p.Name != proxy &&
			(p.Since < since || p.Since == since && p.Name < proxy):
			add(deadlock.Earlier{As: deadlock.AsListed(p.Since), Token: h.token})
		}
	}
	return list
}
