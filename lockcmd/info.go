package lockcmd

import (
	"context"

	"lockproxy/internal/resp"
)

// infoFields are the names of what info.lua returns, in order.
var infoFields = []string{"state", "kind", "token", "owner", "client", "acquired_ms", "expires_ms", "remaining_ms", "session"}

// beginInfo is LOCKINFO.
func (l *Locks) beginInfo(s Session, args [][]byte) (step Step, ok bool) {
	c := l.call(infoScript, string(args[0]), noFastPath, "")
	return Step{&c, func(_ context.Context, answer Answer, err error) Reply {
		return l.info(LockID{s.Identity().DB, c.Keys[0]}, answer.Value, answer.failure(err))
	}}, true
}

// info is LOCKINFO's reply, from what the script says. waiters counts those at this proxy.
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
