package lockcmd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// warnSlow logs a waiter that has waited long. It asks the upstream for the holder, and fails if
// the wait is over before that is answered.
func (l *waits) warnSlow(s session, w *queue.Waiter) error {
	id := w.ID()
	omitted, ok := l.seen.slowLog.Allow(time.Now())
	if !ok {
		return nil
	}
	waited := time.Since(w.Joined).Round(time.Millisecond).String()
	line := []any{"key", id.Key, "db", id.DB, "waited", waited, "client", w.Client}
	c := l.Scripts.Call(script.InfoScript, id.Key, script.NoFastPath, "")
	c.Until = w.AnswerBy(time.Now())
	a, err := s.Eval(&c)
	holder := describeHolder(a.Value, a.Failure(err))
	if w.State().Has {
		holder = []any{"holder", "this client, since a moment ago"}
	}
	line = append(line, holder...)
	if n := l.queues.Of(id).Line().Waiters; n > 0 {
		line = append(line, "waiters", n)
	}
	if omitted > 0 {
		line = append(line, "others_not_logged", omitted)
	}
	l.Log.Warn("waiting long for a lock", line...)
	var late failure.LateError
	if errors.As(err, &late) {
		return late
	}
	return nil
}

// describeHolder is the holder of a lock by info.lua's reply, as pairs for the log.
func describeHolder(v resp.Value, err error) []any {
	h, held := lockinfo.Read(v)
	remaining := h.Remaining.String()
	switch {
	case err != nil:
		return []any{"holder", fmt.Sprintf("unknown (%v)", err)}
	case !held:
		return []any{"holder", "nobody at this moment"}
	case h.Kind != script.KindLockproxy:
		return []any{"holder", foreignHolder, "remaining", remaining}
	}
	pairs := []any{"holder", h.Client, "token", h.Token, "remaining", remaining}
	if h.Owner != "" {
		pairs = append(pairs, "owner", strings.ToValidUTF8(h.Owner, "?"))
	} else if h.Name != "" {
		pairs = append(pairs, "name", h.Name)
	}
	return pairs
}
