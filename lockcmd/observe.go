package lockcmd

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/resp"
)

// Observer is told how long things took. It is called from many goroutines and must not block.
type Observer interface {
	// LockWaited is for a LOCK … WAIT that has ended, with the lock or without.
	LockWaited(d time.Duration, acquired bool)
	// LockHeld is for a lock that was taken and released by way of this proxy.
	LockHeld(d time.Duration)
}

type noObserver struct{}

func (noObserver) LockWaited(time.Duration, bool) {}
func (noObserver) LockHeld(time.Duration)         {}

// Stats is what has happened to locks by way of this proxy, since it started.
type Stats struct {
	Acquired   uint64 // with a new token
	HandedOver uint64 // of Acquired, given to a waiter by the script that released the lock
	Renewed    uint64 // a LOCK by the owner who had the lock
	Held       uint64 // refused: held by another
	Overtime   uint64 // refused: still held when the WAIT was over
	Gone       uint64 // the client closed while it waited
	Failed     uint64 // answered with an error

	Unlocked   uint64 // released by their holders
	Forced     uint64 // released by FORCE, or the admin page
	Disconnect uint64 // released since the holder's connection had closed
	Expired    uint64 // of the locks taken here, those whose time passed with no release seen here
	Lost       uint64 // session locks that could not be renewed in time, or were taken away
	Fenced     uint64 // FENCEs that were refused with FENCED

	Waiters int // clients that wait now
	Queues  int // locks that they wait for
	Holding int // locks that were taken here and have not been seen to end
}

// counters is Counts as it grows.
type counters struct {
	acquired, handedOver, renewed, held, overtime, gone, failed atomic.Uint64
	unlocked, forced, disconnect, expired, lost, fenced         atomic.Uint64
}

// Stats tells what has happened so far.
func (l *Locks) Stats() Stats {
	holding := l.registry.sweep(monotonic.Now())
	l.mu.Lock()
	lines := len(l.queues)
	l.mu.Unlock()
	t := &l.counters
	return Stats{
		Acquired: t.acquired.Load(), HandedOver: t.handedOver.Load(), Renewed: t.renewed.Load(),
		Held: t.held.Load(), Overtime: t.overtime.Load(), Gone: t.gone.Load(), Failed: t.failed.Load(),
		Unlocked: t.unlocked.Load(), Forced: t.forced.Load(), Disconnect: t.disconnect.Load(),
		Expired: t.expired.Load(), Lost: t.lost.Load(), Fenced: t.fenced.Load(),
		Waiters: int(l.waiters.Load()), Queues: lines, Holding: holding,
	}
}

// setObserver is called once, by New.
func (l *Locks) setObserver(by Observer) {
	l.observer, l.registry = by, newRegistry(&l.counters.expired)
	if by == nil {
		l.observer = noObserver{}
	}
}

// observeAcquired counts a LOCK that is answered with a token. again says that its owner had it already.
func (l *Locks) observeAcquired(lock *heldLock, again bool) {
	if again {
		l.counters.renewed.Add(1)
	} else {
		l.counters.acquired.Add(1)
	}
	l.registry.put(lock)
}

// observeRefused takes note of a LOCK without WAIT that got nothing.
func (l *Locks) observeRefused(err error) {
	if err != nil {
		l.counters.failed.Add(1)
	} else {
		l.counters.held.Add(1)
	}
}

// observeWaited takes note of a LOCK with WAIT that has ended.
func (l *Locks) observeWaited(w *waiter, won bool, err error) {
	switch {
	case err == ErrGone:
		l.counters.gone.Add(1)
		return
	case won:
	case err != nil:
		l.counters.failed.Add(1)
		return
	default:
		l.counters.overtime.Add(1)
	}
	l.observer.LockWaited(time.Since(w.joined), won)
}

// observeRelease takes note of what a release has answered, before the next holder can hear of it. on is where it ran.
func (l *Locks) observeRelease(on evaluator, id LockID, as Identity, p proof, v resp.Value, answer []int64, err error) {
	released := err == nil && answer[0] == 1
	if p.kind == "force" {
		l.auditForce(on, id, as, v, released, err)
	}
	if !released {
		return
	}
	if answer[1] != 0 {
		l.counters.handedOver.Add(1)
	}
	token := int64(0)
	if len(answer) > 3 {
		token = answer[3]
	}
	_, asked := on.(Session)
	if p.kind == "request" || p.kind == "reserved" || p.kind == "given" && asked {
		return // of a lock that nobody was told of
	}
	_, forced := on.(operatorConn)
	switch {
	case forced || p.kind == "force":
		l.counters.forced.Add(1)
	case asked:
		l.counters.unlocked.Add(1)
	default:
		l.counters.disconnect.Add(1)
	}
	lock := l.registry.remove(id, p, token)
	if lock == nil {
		return
	}
	l.observer.LockHeld(monotonic.Since(lock.since))
	if lock.by != nil {
		l.lose(lock, errTakenAway)
	} else {
		lock.until.Store(0)
	}
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

// operatorConn is where an operator's release runs.
type operatorConn struct{ evaluator }

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

// maxLogLines bounds the lines of one kind within a second.
const maxLogLines = 10

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

// Waits reports whether a LOCK with these arguments may wait for others. args begin with the name.
func (c *Spec) Waits(args [][]byte) bool {
	if c.Name != "lock" || len(args) < 5 {
		return false
	}
	for _, arg := range args[3:] {
		if len(arg) == 4 && strings.EqualFold(string(arg), "wait") {
			return true
		}
	}
	return false
}
