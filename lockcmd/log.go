package lockcmd

import (
	"fmt"
	"lockproxy/internal/resp"
	"strings"
	"sync/atomic"
	"time"
)

// logLimit counts the log's lines of one kind, so that a crowd doesn't fill it.
type logLimit struct {
	second  atomic.Int64
	within  atomic.Int64
	omitted atomic.Int64
}

// allow reports whether a line may be written now, and how many were not since the last one.
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

// maxLogLines bounds the lines of one kind within a second.
const maxLogLines = 10

// SetSlowWait changes Config.SlowWait, for those who begin to wait from now on.
func (l *Locks) SetSlowWait(d time.Duration) { l.slowWait.Store(int64(d)) }

// slowTimer fires when a waiter has waited so long that the operator should know; never if that isn't wanted.
func (l *Locks) slowTimer() lazyTimer {
	var t lazyTimer
	if d := time.Duration(l.slowWait.Load()); d > 0 {
		t.arm(d)
	}
	return t
}

// warnSlow says who has waited long for a lock, and for whom. It asks the upstream for the holder, in the waiter's own turn.
func (l *Locks) warnSlow(s Session, id LockID, w *waiter) {
	omitted, ok := l.slowLog.allow(time.Now())
	if !ok {
		return
	}
	line := []any{"key", id.Key, "db", id.DB, "waited", time.Since(w.joined).Round(time.Millisecond).String(), "client", w.client}
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

// describeHolder is who has a lock, as pairs for the log.
func (l *Locks) describeHolder(s Session, id LockID) []any {
	v, err := l.ask(s, infoScript, id.Key)
	switch {
	case err != nil:
		return []any{"holder", fmt.Sprintf("unknown (%v)", err)}
	case len(v.Elems) != len(infoFields):
		return []any{"holder", "nobody at this moment"}
	case string(v.Elems[1].Text) != "lockproxy":
		return []any{"holder", "a plain client", "remaining", milliText(v.Elems[7].Int)}
	}
	pairs := []any{"holder", string(v.Elems[4].Text), "token", v.Elems[2].Int, "remaining", milliText(v.Elems[7].Int)}
	if owner := string(v.Elems[3].Text); owner != "" {
		pairs = append(pairs, "owner", strings.ToValidUTF8(owner, "?"))
	}
	return pairs
}

func milliText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func (l *Locks) audit(f ForcedUnlock, released bool, err error) {
	user := f.User
	if user == "" {
		user = "default"
	}
	line := []any{"key", f.Key, "db", f.DB, "token", f.Token, "holder", f.Holder, "client", f.Client, "user", user, "via", f.Via, "released", released}
	if err != nil {
		line = append(line, "error", err)
	}
	l.log.Info("forced unlock", line...)
}

// auditForce leaves a line of each UNLOCK … FORCE: who was it, and whose lock was taken away.
func (l *Locks) auditForce(on evaluator, id LockID, as Identity, v resp.Value, released bool, err error) {
	client := ""
	if s, ok := on.(Session); ok {
		client = s.Holder().Addr
	}
	token, holder := int64(0), ""
	if len(v.Elems) > 4 {
		token, holder = v.Elems[3].Int, string(v.Elems[4].Text)
	}
	l.audit(ForcedUnlock{DB: id.DB, Key: id.Key, Token: token, Holder: holder, Client: client, User: as.User, Via: "redis"}, released, err)
}

// ForcedUnlock is one forced unlock, as the log keeps it.
type ForcedUnlock struct {
	DB     int
	Key    string
	Token  int64  // 0 if a plain client's timestamp was removed
	Holder string // address of the client whose lock it was, as far as it is known
	Client string // address of who forces it
	User   string // of the upstream; "" is the default user
	Via    string // redis, or admin
}

// operatorConn is where an operator's release runs.
type operatorConn struct{ evaluator }
