package lockcmd

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/script"
)

// maxLogLines bounds the log's lines of one kind within a second.
const maxLogLines = 10

// logLimit counts the log's lines of one kind, so that many clients do not fill the log.
type logLimit struct {
	second  atomic.Int64
	within  atomic.Int64
	omitted atomic.Int64
}

// allow reports whether a line can be written now, and how many were omitted since the last one.
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
func (o *observed) SetSlowWait(d time.Duration) { o.slowWait.Store(int64(d)) }

// slowTimer is due when a waiter has waited for Config.SlowWait.
func (o *observed) slowTimer() lazyTimer { return timerAfter(time.Duration(o.slowWait.Load())) }

// ForcedUnlock is a forced unlock, for the log.
type ForcedUnlock struct {
	DB     int
	Key    string
	Token  int64  // 0 for a foreign client's timestamp
	Holder string // address of the client that held the lock, if it is known
	Name   string // of that client's connection, if it has one
	Client string // address of the client that forces it
	User   string // of the upstream; "" is the default user
	Via    string // redis, or admin
}

func (o *observed) audit(f ForcedUnlock, released bool, err error) {
	user := f.User
	if user == "" {
		user = "default"
	}
	line := []any{"key", f.Key, "db", f.DB, "token", f.Token, "holder", f.Holder,
		"client", f.Client, "user", user, "via", f.Via, "released", released}
	if f.Name != "" {
		line = append(line, "holder_name", f.Name)
	}
	if err != nil {
		line = append(line, "error", err)
	}
	o.Log.Info("forced unlock", line...)
}

// auditForce logs an UNLOCK … FORCE, with its client and the holder.
func (o *observed) auditForce(r *unlockCall, v resp.Value, released bool, err error) {
	f := ForcedUnlock{DB: r.id.DB, Key: r.id.Key, User: r.as.User, Via: "redis"}
	if r.by != nil {
		f.Client = r.by.Addr
	}
	if len(v.Elems) > 5 {
		f.Token = v.Elems[3].Int
		f.Holder, f.Name = script.SplitWho(string(v.Elems[5].Text))
	}
	o.audit(f, released, err)
}
