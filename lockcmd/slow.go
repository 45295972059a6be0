package lockcmd

import (
	"fmt"
	"strings"
	"time"
)

// warnSlow logs a waiter that has waited long. It asks the upstream for the holder.
func (l *waits) warnSlow(s Session, w *waiter) {
	id := w.id()
	omitted, ok := l.seen.slowLog.allow(time.Now())
	if !ok {
		return
	}
	waited := time.Since(w.joined).Round(time.Millisecond).String()
	line := []any{"key", id.Key, "db", id.DB, "waited", waited, "client", w.client}
	holder := l.describeHolder(s, id)
	if l.queues.stateOf(w) == granted {
		holder = []any{"holder", "this client, since a moment ago"}
	}
	line = append(line, holder...)
	l.queues.mu.Lock()
	if q := l.queues.of[id]; q != nil {
		line = append(line, "waiters", q.len())
	}
	l.queues.mu.Unlock()
	if omitted > 0 {
		line = append(line, "others_not_logged", omitted)
	}
	l.log.Warn("waiting long for a lock", line...)
}

// describeHolder is the holder of a lock, as pairs for the log.
func (l *waits) describeHolder(s Session, id LockID) []any {
	v, err := l.ask(s, infoScript, id.Key)
	switch {
	case err != nil:
		return []any{"holder", fmt.Sprintf("unknown (%v)", err)}
	case len(v.Elems) != len(infoFields):
		return []any{"holder", "nobody at this moment"}
	}
	remaining := (time.Duration(v.Elems[7].Int) * time.Millisecond).String()
	if string(v.Elems[1].Text) != "lockproxy" {
		return []any{"holder", "a foreign client", "remaining", remaining}
	}
	pairs := []any{"holder", string(v.Elems[4].Text), "token", v.Elems[2].Int,
		"remaining", remaining}
	if owner := string(v.Elems[3].Text); owner != "" {
		pairs = append(pairs, "owner", strings.ToValidUTF8(owner, "?"))
	}
	return pairs
}
