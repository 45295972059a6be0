package lockcmd

import (
	"context"
	"time"

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
