package lockcmd

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// infoFields are the names of what info.lua returns of a holder, in order. Without HOLDERS the time
// and the record's `waiting` follow.
var infoFields = []string{"state", "kind", "token", "owner", "client",
	"acquired_ms", "expires_ms", "remaining_ms", "session", "mode", "holders"}

// queries tells users and operators about locks. Operators can release them, too.
type queries struct {
	*common
	queues   *queues
	seen     *observed
	traffic  *foreignTraffic
	releases *releases
}

// beginInfo is LOCKINFO key [HOLDERS | WAITERS].
func (l *queries) beginInfo(client Client, args [][]byte) *Step {
	reply, asked := l.infoReply, []string(nil)
	if len(args) > 1 {
		switch strings.ToUpper(string(args[1])) {
		case "HOLDERS":
			reply, asked = holdersReply, []string{"holders", strconv.Itoa(syntax.MaxCount)}
		case "WAITERS":
			reply, asked = l.waitersReply, []string{"waiters"}
		default:
			return answered(errorReply(syntax.Unexpected(args[1], "HOLDERS or WAITERS")))
		}
	}
	c := l.Scripts.Call(script.InfoScript, string(args[0]), script.NoFastPath, "", asked...)
	return &Step{Call: &c, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		return reply(names.Lock{DB: client.As.DB, Key: c.Keys[0]}, answer.Value, answer.Failure(err)), nil
	}}
}

// holdersReply is LOCKINFO HOLDERS's reply.
func holdersReply(_ names.Lock, v resp.Value, err error) Reply {
	list := Reply{Kind: ArrayReply}
	switch {
	case err != nil:
		return errorReply(err)
	case len(v.Elems) != 4:
		return errorReply(script.Unexpected(script.InfoScript, v))
	}
	for _, h := range v.Elems[3].Elems {
		if len(h.Elems) != len(infoFields) {
			return errorReply(script.Unexpected(script.InfoScript, v))
		}
		name := splitName(h.Elems)
		list.Elems = append(list.Elems, mapReply(
			"token", fieldReply(h.Elems[2]), "owner", fieldReply(h.Elems[3]),
			"client", fieldReply(h.Elems[4]), "mode", fieldReply(h.Elems[9]),
			"acquired_ms", fieldReply(h.Elems[5]), "expires_ms", fieldReply(h.Elems[6]),
			"session", fieldReply(h.Elems[8]), "name", textReply(name),
		))
	}
	return list
}

// waitersReply is LOCKINFO WAITERS's reply: the queue here, then the other proxies with queues.
func (l *queries) waitersReply(id names.Lock, v resp.Value, err error) Reply {
	switch {
	case err != nil:
		return errorReply(err)
	case len(v.Elems) != 3:
		return errorReply(script.Unexpected(script.InfoScript, v))
	}
	list, now := Reply{Kind: ArrayReply}, time.Now()
	upstreamTime := func(t time.Time) Reply { // only the upstream's clock counts
		return intReply(v.Elems[0].Int + t.Sub(now).Milliseconds())
	}
	for _, w := range l.queues.Waiters(id, syntax.MaxCount) {
		until := nullReply
		if !w.Until.IsZero() {
			until = upstreamTime(w.Until)
		}
		list.Elems = append(list.Elems, mapReply(
			"owner", bulkReply(w.Owner), "client", bulkReply(w.Client),
			"mode", bulkReply(w.Mode), "since_ms", upstreamTime(w.Since), "until_ms", until,
			"name", textReply(w.Name),
		))
	}
	for _, p := range waitingProxies(v.Elems) {
		if p.name != l.Scripts.Proxy {
			list.Elems = append(list.Elems,
				mapReply("proxy", bulkReply(p.name), "since_ms", intReply(p.since)))
		}
	}
	return list
}

// waitingProxy is a proxy that has waiters for a lock, as the lock record lists it.
type waitingProxy struct {
	name       string
	how, since int64
}

// waitersElsewhere is how many other proxies have waiters, from elements as of waitingProxies.
func (l *queries) waitersElsewhere(since []resp.Value) (n int) {
	for _, p := range waitingProxies(since) {
		if p.name != l.Scripts.Proxy {
			n++
		}
	}
	return n
}

// splitName takes the connection's name out of the client in info.lua's reply about a holder, and
// returns it.
func splitName(fields []resp.Value) (name string) {
	client, name := script.SplitWho(string(fields[4].Text))
	fields[4].Text = fields[4].Text[:len(client)]
	return name
}

// waitingProxies reads the proxies with waiters, in order, from elements of info.lua's reply that
// begin with the time and the record's `waiting`.
func waitingProxies(since []resp.Value) (list []waitingProxy) {
	for entry := range strings.SplitSeq(string(since[1].Text), ",") {
		fields := strings.Split(entry, ":") // as read.lua has them
		if len(fields) != 4 {
			continue
		}
		seen, _ := strconv.ParseInt(fields[1], 10, 64)
		if since[0].Int-seen >= waitingSeen {
			continue
		}
		how, _ := strconv.ParseInt(fields[2], 10, 64)
		joined, _ := strconv.ParseInt(fields[3], 10, 64)
		list = append(list, waitingProxy{fields[0], how, joined})
	}
	return list
}

// waitingSeen is how long after its last poll a proxy counts as waiting, ms.
const waitingSeen = 1000

// fieldReply is a field of info.lua's reply, unchanged.
func fieldReply(e resp.Value) Reply {
	switch e.Type {
	case ':':
		return intReply(e.Int)
	case '$':
		return bulkReply(string(e.Text))
	}
	return nullReply
}

// infoReply is LOCKINFO's reply. waiters are those at this proxy.
func (l *queries) infoReply(id names.Lock, v resp.Value, err error) Reply {
	switch {
	case err != nil:
		return errorReply(err)
	case v.IsNull():
		return nullReply
	case len(v.Elems) != len(infoFields)+2:
		return errorReply(script.Unexpected(script.InfoScript, v))
	}
	name := splitName(v.Elems)
	seen := l.traffic.addHolder(id, v.Elems)
	if name == "" {
		name = seen.Holder.Name
	}
	since := v.Elems[len(infoFields):]
	info := Reply{Kind: MapReply}
	l.queues.mu.Lock()
	waiters := 0
	if q := l.queues.of[id]; q != nil {
		waiters = q.len()
	}
	l.queues.mu.Unlock()
	for i, e := range v.Elems[:len(infoFields)] {
		if infoFields[i] == "mode" {
			info.Elems = append(info.Elems, bulkReply("waiters"), intReply(int64(waiters)))
		}
		info.Elems = append(info.Elems, bulkReply(infoFields[i]), fieldReply(e))
	}
	held := nullReply
	if acquired := v.Elems[5]; !acquired.IsNull() {
		held = intReply(max(since[0].Int-acquired.Int, 0))
	}
	info.Elems = append(info.Elems, bulkReply("name"), textReply(name), bulkReply("held_ms"), held,
		bulkReply("waiters_elsewhere"), intReply(int64(l.waitersElsewhere(since))))
	info.Elems = append(info.Elems, foreignFields(seen, v.Elems[6].Int-v.Elems[7].Int)...)
	return info
}

// foreignFields are what LOCKINFO says about foreign clients at a lock: the holder's library, how
// often others were refused since it took the lock, and which still try. now is the upstream's
// time, ms.
func foreignFields(seen foreign.Lock, now int64) (fields []Reply) {
	if seen.Holder.Addr != "" {
		fields = mapReply("library", textReply(seen.Holder.Library),
			"refused", intReply(int64(seen.Refused))).Elems
	}
	if len(seen.Trying) == 0 {
		return fields
	}
	list := Reply{Kind: ArrayReply}
	for _, t := range seen.Trying {
		list.Elems = append(list.Elems, mapReply(
			"owner", textReply(t.Name), "client", textReply(t.Addr),
			"library", textReply(t.Library), "refused", intReply(int64(t.Times)),
			"since_ms", intReply(now-time.Since(t.Since).Milliseconds()),
		))
	}
	return append(fields, bulkReply("trying"), list)
}

// textReply is null for an empty text.
func textReply(text string) Reply {
	if text == "" {
		return nullReply
	}
	return bulkReply(text)
}

// heldInfo reads info.lua's reply. ok is false if the lock is not held.
func heldInfo(v resp.Value) (h LockInfo, ok bool) {
	if len(v.Elems) < len(infoFields) || string(v.Elems[0].Text) != "held" {
		return h, false
	}
	remaining := v.Elems[7].Int
	now := v.Elems[6].Int - remaining // the upstream's time
	client, name := script.SplitWho(string(v.Elems[4].Text))
	h = LockInfo{
		Kind: string(v.Elems[1].Text), Token: v.Elems[2].Int, Owner: string(v.Elems[3].Text),
		Client: client, Name: name, Age: script.FromMS(max(now-v.Elems[5].Int, 0)),
		Remaining: script.FromMS(remaining), Session: v.Elems[8].Int == 1,
		Mode: string(v.Elems[9].Text), Holders: int(v.Elems[10].Int),
	}
	if v.Elems[5].IsNull() {
		h.Age = UnknownAge
	}
	return h, true
}

// LockInfo is a lock that is held.
type LockInfo struct {
	names.Lock
	Kind      string // lockproxy, timestamp or other: see LOCKINFO
	Token     int64  // 0 unless LOCK holds it
	Owner     string
	Client    string        // address
	Name      string        // of the client's connection, if it has one
	Age       time.Duration // since it was acquired, or UnknownAge
	Remaining time.Duration // until it expires
	Session   bool
	Mode      string // "exclusive" or "shared"
	Holders   int    // of a shared lock. The other fields are those of the highest token
	Waiters   int    // at this proxy, with foreign clients that try
	// Elsewhere is how many other proxies have waiters, as far as the record tells.
	Elsewhere int
	// OldestWait is how long the first of them has waited.
	OldestWait time.Duration
	// Library is that of the foreign client that holds the lock, if it is known. Refused is how
	// often others were refused since.
	Library string
	Refused int
}

// Whose is what people call the holder by, if anything: its owner's name, or its connection's.
func (h *LockInfo) Whose() string { return cmp.Or(h.Owner, h.Name) }

// Snapshot returns locks without asking the upstream: at most limit of those that were taken
// through this proxy and have not been seen to end, with one of each database beyond; all that
// clients wait for here; and those of foreign clients that were seen. A lock that was taken
// elsewhere has only its name and waiters.
func (l *queries) Snapshot(limit int) []LockInfo {
	index, databases := map[names.Lock]int{}, map[int]bool{}
	var list []LockInfo
	l.seen.registry.visitAll(func(lock *heldLock) {
		if i, ok := index[lock.id()]; ok { // it has several holders
			holders := list[i].Holders + 1
			if lock.token > list[i].Token {
				list[i] = lock.info()
			}
			list[i].Holders = holders
			return
		}
		if len(list) >= limit && databases[lock.as.DB] {
			return
		}
		databases[lock.as.DB] = true
		index[lock.id()] = len(list)
		list = append(list, lock.info())
	})
	for _, lock := range l.traffic.ForeignLocks(limit) {
		if _, ok := index[lock.Lock]; !ok {
			index[lock.Lock] = len(list)
			list = append(list, foreignInfo(lock))
		}
	}
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	for id, q := range l.queues.of {
		i, ok := index[id]
		if !ok {
			i = len(list)
			list = append(list, LockInfo{Lock: id})
		}
		list[i].addWaiters(q)
	}
	return list
}

// UnknownAge stands for the age of a foreign lock that this proxy has not seen being taken.
const UnknownAge = time.Duration(-1)

// info is what this proxy knows about the lock.
func (lock *heldLock) info() LockInfo {
	return LockInfo{
		Lock: lock.id(), Kind: script.KindLockproxy, Token: lock.token, Owner: lock.Owner,
		Client: lock.Client, Name: lock.Name, Age: monotonic.Since(lock.since),
		Remaining: -monotonic.Since(lock.until.Load()), Session: lock.Session,
		Mode: lock.Mode(), Holders: 1,
	}
}
