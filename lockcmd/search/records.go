package search

import (
	"cmp"
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

// registered are the holders of locks that this proxy has given.
func (d *Deadlocks) registered(locks []lockAs) map[lockAs]*holding {
	found := map[lockAs]*holding{}
	for _, lock := range locks {
		h := &holding{}
		d.locks.Visit(names.Lock{DB: lock.as.DB, Key: lock.key}, func(lock *held.Lock) {
			h.shared = lock.IsShared()
			h.by = append(h.by, deadlock.Holder{Owner: deadlock.Binary(lock.Owner), Token: lock.Token})
		})
		found[lock] = h
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

// held asks the upstream for the holders of locks, as their waits' clients.
func (d *Deadlocks) held(locks []lockAs) map[lockAs]*holding {
	loopguard.MayWait()
	found := map[lockAs]*holding{}
	var asking sync.WaitGroup
	for _, lock := range locks {
		if found[lock] == nil {
			h := &holding{}
			found[lock] = h
			asking.Go(func() { *h = d.askHolders(lock) }) // ends within heldWithin
		}
	}
	asking.Wait()
	return found
}

func (d *Deadlocks) askHolders(lock lockAs) (h holding) {
	until := time.Now().Add(heldWithin + 4*d.Clients.Ways.RoundTrip(lock.key))
	on := d.Clients.On(d.Timers.Ctx, lock.as, lock.key, until)
	got, err := d.Ask(on, script.InfoScript, lock.key, "holders", strconv.Itoa(maxBlockers))
	if err != nil || len(got.Elems) != 4 {
		return h
	}
	h.known = true
	h.listed = lockinfo.ReadProxies(got.Elems, "")
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

// readable hides the keys of a cycle that a client may not read. of are the waits.
func (d *Deadlocks) readable(
	as names.Identity, cycle []deadlock.Step, of map[string]*wait,
) []deadlock.Step {
	cycle = slices.Clone(cycle)
	login := d.logins.loginOf(as)
	own := func(step deadlock.Step) bool { return d.logins.loginOf(of[step.ID].as) == login }
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
	asked := d.held(locks)
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
