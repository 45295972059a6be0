package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/resp"
)

// infoFields are the names of what info.lua returns, in order.
var infoFields = []string{"state", "kind", "token", "owner", "client",
	"acquired_ms", "expires_ms", "remaining_ms", "session"}

// beginInfo is LOCKINFO.
func (l *Locks) beginInfo(s Session, args [][]byte) (step Step, ok bool) {
	c := l.call(infoScript, string(args[0]), noFastPath, "")
	return Step{&c, func(_ context.Context, answer Answer, err error) Reply {
		return l.info(LockID{s.Identity().DB, c.Keys[0]}, answer.Value, answer.failure(err))
	}}, true
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
		field := nullReply
		switch e.Type {
		case ':':
			field = intReply(e.Int)
		case '$':
			field = bulkReply(string(e.Text))
		}
		info.Elems = append(info.Elems, bulkReply(infoFields[i]), field)
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
}
