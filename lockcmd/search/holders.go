package search

import (
	"cmp"
	"math"
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

// held asks the upstream for the holders of the locks that waits are for, as their clients.
func (d *Deadlocks) held(list []*watchedWait) map[*queue.Waiter]*holding {
	loopguard.MayWait()
	type lockAs struct {
		as  names.Identity
		key string
	}
	found, asked := map[*queue.Waiter]*holding{}, map[lockAs]*holding{}
	var asking sync.WaitGroup
	for _, v := range list {
		for _, w := range v.Waiters {
			lock := lockAs{w.As, w.Key}
			if asked[lock] == nil {
				h := &holding{}
				asked[lock] = h
				asking.Go(func() { *h = d.askHolders(w) }) // ends within heldWithin
			}
			found[w] = asked[lock]
		}
	}
	asking.Wait()
	return found
}

func (d *Deadlocks) askHolders(w *queue.Waiter) (h holding) {
	until := time.Now().Add(heldWithin + 4*d.Clients.Ways.RoundTrip(w.Key))
	on := d.Clients.On(d.Timers.Ctx, w.As, w.Key, until)
	got, err := d.Ask(on, script.InfoScript, w.Key, "holders", strconv.Itoa(maxBlockers))
	if err != nil || len(got.Elems) != 4 {
		return h
	}
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
