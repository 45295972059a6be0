package lockcmd

import (
	"context"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/resp"
)

// infoFields are the names of what info.lua returns, in order.
var infoFields = []string{"state", "kind", "token", "owner", "client",
	"acquired_ms", "expires_ms", "remaining_ms", "session"}

// beginInfo is LOCKINFO key [HOLDERS | WAITERS].
func (l *Locks) beginInfo(s Session, args [][]byte) (step Step, ok bool) {
	reply, asked := l.info, []string(nil)
	if len(args) > 1 {
		switch strings.ToUpper(string(args[1])) {
		case "HOLDERS":
			reply = l.holders
		case "WAITERS":
			reply, asked = l.waitersReply, []string{"waiters"}
		default:
			return answered(errorReply(errSyntax)), true
		}
	}
	c := l.call(infoScript, string(args[0]), noFastPath, "", asked...)
	return Step{&c, func(_ context.Context, answer Answer, err error) Reply {
		return reply(LockID{s.Identity().DB, c.Keys[0]}, answer.Value, answer.failure(err))
	}}, true
}

// holders is LOCKINFO HOLDERS's reply.
func (l *Locks) holders(_ LockID, v resp.Value, err error) Reply {
	list := Reply{Kind: ArrayReply}
	switch {
	case err != nil:
		return errorReply(err)
	case v.IsNull():
		return list
	case len(v.Elems) != len(infoFields):
		return errorReply(unexpected(infoScript, v))
	}
	list.Elems = []Reply{mapReply(
		"token", fieldReply(v.Elems[2]), "owner", fieldReply(v.Elems[3]),
		"client", fieldReply(v.Elems[4]), "mode", bulkReply("exclusive"),
		"acquired_ms", fieldReply(v.Elems[5]), "expires_ms", fieldReply(v.Elems[6]),
		"session", fieldReply(v.Elems[8]),
	)}
	return list
}

// waitersReply is LOCKINFO WAITERS's reply: the queue here, then the other proxies that have one.
func (l *Locks) waitersReply(id LockID, v resp.Value, err error) Reply {
	switch {
	case err != nil:
		return errorReply(err)
	case len(v.Elems) != 2:
		return errorReply(unexpected(infoScript, v))
	}
	list, now := Reply{Kind: ArrayReply}, time.Now()
	upstreamTime := func(t time.Time) Reply { // only the upstream's clock counts
		return intReply(v.Elems[0].Int + t.Sub(now).Milliseconds())
	}
	for _, w := range l.Waiters(id, maxListed) {
		until := nullReply
		if !w.Until.IsZero() {
			until = upstreamTime(w.Until)
		}
		list.Elems = append(list.Elems, mapReply(
			"owner", bulkReply(w.Owner), "client", bulkReply(w.Client),
			"mode", bulkReply("exclusive"), "since_ms", upstreamTime(w.Since), "until_ms", until,
		))
	}
	for entry := range strings.SplitSeq(string(v.Elems[1].Text), ",") {
		fields := strings.Split(entry, ":") // as read.lua has them
		if len(fields) != 4 || fields[0] == l.proxy {
			continue
		}
		seen, _ := strconv.ParseInt(fields[1], 10, 64)
		if v.Elems[0].Int-seen > waitingSeen {
			continue
		}
		since, _ := strconv.ParseInt(fields[3], 10, 64)
		list.Elems = append(list.Elems,
			mapReply("proxy", bulkReply(fields[0]), "since_ms", intReply(since)))
	}
	return list
}

// waitingSeen is how long ago another proxy that has waiters can have polled, ms.
const waitingSeen = 1000

// Waiter is a client that waits for a lock.
type Waiter struct {
	Owner, Client string
	Since         time.Time
	Until         time.Time // zero is never
}

// Waiters returns up to limit of the clients that wait for a lock at this proxy, in order.
func (l *Locks) Waiters(id LockID, limit int) (list []Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[id]
	if q == nil {
		return nil
	}
	for place := q.waiters.Front(); place != nil && len(list) < limit; place = place.Next() {
		w := place.Value.(*waiter)
		list = append(list, Waiter{w.owner, w.client, w.joined, w.until})
	}
	return list
}

// fieldReply is a field of info.lua's as it is.
func fieldReply(e resp.Value) Reply {
	switch e.Type {
	case ':':
		return intReply(e.Int)
	case '$':
		return bulkReply(string(e.Text))
	}
	return nullReply
}

// info is LOCKINFO's reply. waiters are those at this proxy.
func (l *Locks) info(id LockID, v resp.Value, err error) Reply {
	switch {
	case err != nil:
		return errorReply(err)
	case v.IsNull():
		return nullReply
	case len(v.Elems) != len(infoFields):
		return errorReply(unexpected(infoScript, v))
	}
	l.addForeign(id, v.Elems)
	info := Reply{Kind: MapReply}
	for i, e := range v.Elems {
		info.Elems = append(info.Elems, bulkReply(infoFields[i]), fieldReply(e))
	}
	l.mu.Lock()
	waiters := 0
	if q := l.queues[id]; q != nil {
		waiters = q.len()
	}
	l.mu.Unlock()
	info.Elems = append(info.Elems, bulkReply("waiters"), intReply(int64(waiters)))
	return info
}

// addForeign adds to info.lua's reply about a foreign client's lock who holds it, if this proxy has
// seen it being taken: the client's name as the owner, its address, and since when.
func (l *Locks) addForeign(id LockID, fields []resp.Value) {
	now := time.Now()
	seen, ok := l.foreignLocks.Get(foreign.ID(id), now)
	if string(fields[1].Text) == "lockproxy" || !ok || seen.Holder.Addr == "" {
		return
	}
	// Otherwise another client has it by now.
	left := time.Duration(fields[7].Int) * time.Millisecond
	if off := seen.Until.Sub(now) - left; off.Abs() > foreignSlack {
		return
	}
	bulk := func(text string) resp.Value { return resp.Value{Type: '$', Text: []byte(text)} }
	if seen.Holder.Name != "" {
		fields[3] = bulk(seen.Holder.Name)
	}
	fields[4] = bulk(seen.Holder.Addr)
	upstreamNow := fields[6].Int - fields[7].Int
	fields[5] = resp.Value{Type: ':', Int: upstreamNow - now.Sub(seen.Since).Milliseconds()}
}

// foreignSlack is how much the end of a foreign lock may differ from what this proxy has seen.
const foreignSlack = 1100 * time.Millisecond

// heldInfo reads info.lua's reply. ok is false for a lock that is not held by LOCK.
func heldInfo(v resp.Value) (h LockInfo, ok bool) {
	if len(v.Elems) != len(infoFields) || string(v.Elems[0].Text) != "held" ||
		string(v.Elems[1].Text) != "lockproxy" {
		return h, false
	}
	ms := func(i int) time.Duration { return time.Duration(v.Elems[i].Int) * time.Millisecond }
	now := ms(6) - ms(7) // the upstream's clock: expires without remaining
	return LockInfo{
		Token: v.Elems[2].Int, Owner: string(v.Elems[3].Text), Client: string(v.Elems[4].Text),
		Age: max(now-ms(5), 0), Remaining: ms(7), Session: v.Elems[8].Int == 1,
	}, true
}

// LockInfo is a lock that is held by LOCK.
type LockInfo struct {
	LockID
	Token     int64
	Owner     string
	Client    string        // address
	Age       time.Duration // since it was acquired
	Remaining time.Duration // until it expires
	Session   bool
	Waiters   int // at this proxy
	// OldestWait is for how long the first of them has waited.
	OldestWait time.Duration
}
