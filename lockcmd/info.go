package lockcmd

import (
	"cmp"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// infoCall is a call of info.lua.
func (l *queries) infoCall(key string, asked ...string) script.Call {
	return l.Scripts.Call(script.InfoScript, key, script.NoFastPath, "", asked...)
}

// holdersReply is LOCKINFO HOLDERS's reply.
func holdersReply(_ names.Lock, v resp.Value, err error) Reply {
	list := resp.Array()
	switch {
	case err != nil:
		return errorReply(err)
	case len(v.Elems) != 4:
		return errorReply(script.Unexpected(script.InfoScript, v))
	}
	for _, elem := range v.Elems[3].Elems {
		if len(elem.Elems) != lockinfo.Fields {
			return errorReply(script.Unexpected(script.InfoScript, v))
		}
		h, _ := lockinfo.Read(elem)
		token, owner, client, acquired := ofHolder(h)
		list.Elems = append(list.Elems, resp.Map(
			"token", token, "owner", owner, "client", client, "mode", resp.Bulk(h.Mode),
			"acquired_ms", acquired, "expires_ms", resp.Int(h.Expires), "session", elem.Elems[8],
			"name", resp.Text(h.Name), "note", resp.Text(h.Note),
		))
	}
	return valueReply(list)
}

// waitersReply is LOCKINFO WAITERS's reply: the queue here, then the other proxies with queues.
func (l *queries) waitersReply(id names.Lock, v resp.Value, err error) Reply {
	switch {
	case err != nil:
		return errorReply(err)
	case len(v.Elems) != 3:
		return errorReply(script.Unexpected(script.InfoScript, v))
	}
	list, now := resp.Array(), time.Now()
	upstreamTime := func(t time.Time) resp.Value { // only the upstream's clock counts
		return resp.Int(v.Elems[0].Int + t.Sub(now).Milliseconds())
	}
	for _, w := range l.queues.Of(id).Waiters(syntax.MaxCount) {
		until := resp.Null
		if !w.Until.IsZero() {
			until = upstreamTime(w.Until)
		}
		list.Elems = append(list.Elems, resp.Map(
			"owner", resp.Bulk(w.Owner), "client", resp.Bulk(w.Client),
			"mode", resp.Bulk(w.Mode()), "since_ms", upstreamTime(w.Since), "until_ms", until,
			"name", resp.Text(w.Name),
		))
	}
	for _, p := range lockinfo.ReadProxies(v.Elems, l.Scripts.Proxy) {
		list.Elems = append(list.Elems,
			resp.Map("proxy", resp.Bulk(p.Name), "since_ms", resp.Int(p.Since)))
	}
	return valueReply(list)
}

// infoReply is LOCKINFO's reply. waiters are those at this proxy.
func (l *queries) infoReply(id names.Lock, v resp.Value, err error) Reply {
	switch {
	case err != nil:
		return errorReply(err)
	case v.IsNull():
		return valueReply(resp.Null)
	case len(v.Elems) != lockinfo.Fields+2:
		return errorReply(script.Unexpected(script.InfoScript, v))
	}
	h, seen, _ := l.shown(id, v)
	token, owner, client, acquired := ofHolder(h)
	held := resp.Null
	if h.Acquired != 0 {
		held = resp.Int(max(v.Elems[lockinfo.Fields].Int-h.Acquired, 0))
	}
	info := resp.Map(
		"state", resp.Bulk(h.State), "kind", resp.Bulk(h.Kind), "token", token, "owner", owner,
		"client", client, "acquired_ms", acquired, "expires_ms", resp.Int(h.Expires),
		"remaining_ms", resp.Int(h.Expires-h.Now), "session", v.Elems[8],
		"waiters", resp.Int(l.queues.Of(id).Line().Waiters), "mode", resp.Bulk(h.Mode),
		"holders", resp.Int(h.Holders), "note", resp.Text(h.Note),
		"name", resp.Text(cmp.Or(h.Name, seen.Holder.Name)), "held_ms", held,
		"waiters_elsewhere", resp.Int(h.Elsewhere),
	)
	info.Elems = append(info.Elems, foreignFields(seen, h.Now)...)
	return valueReply(info)
}

// shown is what info.lua and this proxy know about a lock, and what this proxy has seen of foreign
// clients there. held is as for lockinfo.Read.
func (l *queries) shown(
	id names.Lock, v resp.Value,
) (h lockinfo.Info, seen foreign.Lock, held bool) {
	h, held = lockinfo.Read(v)
	h.Lock = id
	if len(v.Elems) == lockinfo.Fields+2 {
		h.Elsewhere = len(lockinfo.ReadProxies(v.Elems[lockinfo.Fields:], l.Scripts.Proxy))
	}
	seen = l.traffic.addHolder(&h)
	return h, seen, held
}

// ofHolder are some fields of a holder; null is what is not known of a foreign client.
func ofHolder(h lockinfo.Info) (token, owner, client, acquired resp.Value) {
	token, owner, client = resp.Int(h.Token), resp.Bulk(h.Owner), resp.Bulk(h.Client)
	if h.Kind != script.KindLockproxy {
		token, owner, client = resp.Null, resp.Text(h.Owner), resp.Text(h.Client)
	}
	if acquired = resp.Int(h.Acquired); h.Acquired == 0 {
		acquired = resp.Null
	}
	return token, owner, client, acquired
}

// foreignFields are what LOCKINFO says about foreign clients at a lock: the holder's library, how
// often others were refused since it took the lock, and which still try. now is the upstream's
// time, ms.
func foreignFields(seen foreign.Lock, now int64) (fields []resp.Value) {
	if seen.Holder.Addr != "" {
		fields = resp.Map("library", resp.Text(seen.Holder.Library),
			"refused", resp.Int(seen.Refused)).Elems
	}
	if len(seen.Trying) == 0 {
		return fields
	}
	list := resp.Array()
	for _, t := range seen.Trying {
		list.Elems = append(list.Elems, resp.Map(
			"owner", resp.Text(t.Name), "client", resp.Text(t.Addr),
			"library", resp.Text(t.Library), "refused", resp.Int(t.Times),
			"since_ms", resp.Int(now-time.Since(t.Since).Milliseconds()),
		))
	}
	return append(fields, resp.Bulk("trying"), list)
}

// Snapshot returns locks without asking the upstream: at most limit of those that were taken
// through this proxy and have not been seen to end, with one of each database beyond; all that
// clients wait for here; and those of foreign clients that were seen. A lock that was taken
// elsewhere has only its name and waiters.
func (l *queries) Snapshot(limit int) []lockinfo.Info {
	index, databases := map[names.Lock]int{}, map[int]bool{}
	var list []lockinfo.Info
	l.seen.registry.VisitAll(func(lock *held.Lock) {
		if i, ok := index[lock.ID()]; ok { // it has several holders
			holders := list[i].Holders + 1
			if lock.Token > list[i].Token {
				list[i] = lock.Info()
			}
			list[i].Holders = holders
			return
		}
		if len(list) >= limit && databases[lock.As.DB] {
			return
		}
		databases[lock.As.DB] = true
		index[lock.ID()] = len(list)
		list = append(list, lock.Info())
	})
	for _, lock := range l.traffic.ForeignLocks(limit) {
		if _, ok := index[lock.Lock]; !ok {
			index[lock.Lock] = len(list)
			list = append(list, lockinfo.OfForeign(lock))
		}
	}
	for _, line := range l.queues.Lines() {
		i, ok := index[line.Lock]
		if !ok {
			i = len(list)
			list = append(list, lockinfo.Info{Lock: line.Lock})
		}
		addLine(&list[i], line)
	}
	return list
}

// addLine says who waits for the lock here.
func addLine(h *lockinfo.Info, line queue.Line) {
	if line.Waiters > 0 {
		h.Waiters += line.Waiters
		h.OldestWait = max(h.OldestWait, time.Since(line.Oldest))
	}
}
