package lockcmd

import (
	"context"
	"fmt"
	"time"

	"lockproxy/internal/loglimit"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// warnSlow logs a waiter that has waited long, once it has asked the upstream for the holder. It
// does not wait for that.
func (l *waits) warnSlow(w *queue.Waiter) {
	id := w.ID()
	omitted, ok := l.seen.slowLog.Allow(time.Now())
	if !ok {
		return
	}
	waited := time.Since(w.Joined).Round(time.Millisecond).String()
	line := []any{"key", id.Key, "db", id.DB, "waited", waited, "client", w.Client}
	l.Timers.After(0, func(ctx context.Context) {
		on := l.Clients.On(ctx, w.As, id.Key, time.Now().Add(l.Clients.Patience()))
		v, err := l.Ask(on, script.InfoScript, id.Key)
		holder := describeHolder(v, err)
		if w.State().Has {
			holder = []any{"holder", "this client, since a moment ago"}
		}
		line = loglimit.Add(append(line, holder...), "waiters", int64(l.queues.Of(id).Line().Waiters),
			"others_not_logged", omitted)
		l.Log.Warn("a client has waited long for a lock", line...)
	})
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
	if h.Owner != "" {
		h.Name = ""
	}
	return loglimit.Add([]any{"holder", h.Client, "token", h.Token, "remaining", remaining},
		"owner", h.Owner, "name", h.Name, "note", h.Note)
}
