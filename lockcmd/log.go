package lockcmd

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"lockproxy/internal/resp"
)

// maxLogLines bounds the log's lines of one kind within a second.
const maxLogLines = 10

// logLimit counts the log's lines of one kind, so that many clients do not fill it.
type logLimit struct {
	second  atomic.Int64
	within  atomic.Int64
	omitted atomic.Int64
}

// allow reports whether a line may be written now, and how many were omitted since the last one.
func (s *logLimit) allow(now time.Time) (omitted int64, ok bool) {
	second := now.Unix()
	if s.second.Swap(second) != second {
		s.within.Store(0)
	}
	if s.within.Add(1) > maxLogLines {
		s.omitted.Add(1)
		return 0, false
	}
	return s.omitted.Swap(0), true
}

// SetSlowWait changes Config.SlowWait for later waits.
func (l *Locks) SetSlowWait(d time.Duration) { l.slowWait.Store(int64(d)) }

// slowTimer fires when a waiter has waited for Config.SlowWait, never if that is 0.
func (l *Locks) slowTimer() lazyTimer {
	var t lazyTimer
	if d := time.Duration(l.slowWait.Load()); d > 0 {
		t.arm(d)
	}
	return t
}

// warnSlow logs a waiter that has waited long, and the holder, for which it asks the upstream.
func (l *Locks) warnSlow(s Session, w *waiter) {
	id := w.id()
	omitted, ok := l.slowLog.allow(time.Now())
	if !ok {
		return
	}
	waited := time.Since(w.joined).Round(time.Millisecond).String()
	line := []any{"key", id.Key, "db", id.DB, "waited", waited, "client", w.client}
	holder := l.describeHolder(s, id)
	if l.isGranted(w) {
		holder = []any{"holder", "this client, since a moment ago"}
	}
	line = append(line, holder...)
	l.mu.Lock()
	if q := l.queues[id]; q != nil {
		line = append(line, "waiters", q.len())
	}
	l.mu.Unlock()
	if omitted > 0 {
		line = append(line, "others_not_logged", omitted)
	}
	l.log.Warn("waiting long for a lock", line...)
}

// describeHolder is the holder of a lock, as pairs for the log.
func (l *Locks) describeHolder(s Session, id LockID) []any {
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

// ForcedUnlock is one forced unlock, as the log keeps it.
type ForcedUnlock struct {
	DB     int
	Key    string
	Token  int64  // 0 for a foreign client's timestamp
	Holder string // address of the client that held the lock, if it is known
	Client string // address of the client that forces it
	User   string // of the upstream; "" is the default user
	Via    string // redis, or admin
}

func (l *Locks) audit(f ForcedUnlock, released bool, err error) {
	user := f.User
	if user == "" {
		user = "default"
	}
	line := []any{"key", f.Key, "db", f.DB, "token", f.Token, "holder", f.Holder,
		"client", f.Client, "user", user, "via", f.Via, "released", released}
	if err != nil {
		line = append(line, "error", err)
	}
	l.log.Info("forced unlock", line...)
}

// auditForce logs an UNLOCK … FORCE: whose it was, and whose lock it released.
func (l *Locks) auditForce(r *unlockRun, v resp.Value, released bool, err error) {
	f := ForcedUnlock{DB: r.id.DB, Key: r.id.Key, User: r.as.User, Via: "redis"}
	if s, ok := r.on.(Session); ok {
		f.Client = s.Holder().Addr
	}
	if len(v.Elems) > 4 {
		f.Token, f.Holder = v.Elems[3].Int, string(v.Elems[4].Text)
	}
	l.audit(f, released, err)
}

// operatorConn is where an operator's release runs.
type operatorConn struct{ evaluator }
