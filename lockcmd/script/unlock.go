package script

import (
	"strconv"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/keyname"
)

const (
	// Reservation is how long a released lock is kept for the first waiter of a notified proxy.
	Reservation = 100 * time.Millisecond
	// pollReservation is how long it is kept for a proxy that cannot be notified: its first waiter
	// polls within MaxPoll. The proxy must have waited for pollPatience, so that the lock is not
	// idle most of the time.
	pollReservation = 400 * time.Millisecond
	pollPatience    = 500 * time.Millisecond
)

// Proof shows that a lock is its releaser's.
type Proof struct {
	Kind  string // `by` of unlock.lua
	Value string
}

// Token is the proof's token, 0 if it has none.
func (p Proof) Token() int64 {
	if p.Kind != "token" && p.Kind != "revoke" {
		return 0
	}
	n, _ := strconv.ParseInt(p.Value, 10, 64)
	return n
}

// Release is what a release tells unlock.lua.
type Release struct {
	Id      names.Lock
	Proof   Proof
	Has     string    // the token of the connection's shared lock, or "-"
	How     How       // how this proxy waits
	Wanted  string    // what the waiters here want: `wanted` of unlock.lua
	Waiters []Request // that the lock is offered to, in order; see Maker.Lock
}

// ErrForeignLock is unlock.lua's answer to a forced release of another library's lock.
const ErrForeignLock = ServerError("WRONGTYPE Key holds another library's lock")

// Unlock makes a call of unlock.lua.
func (m *Maker) Unlock(u Release) Call {
	fast := m.fastUnlock(u.Proof, u.Wanted, u.Waiters)
	if u.Has != "-" && fast[2] == "none" {
		fast[1] = u.Has // only a token finds a holder of a shared lock at once
	}
	words := append([]string{u.Wanted}, m.releaseWords(u.Id, u.Proof, u.How, u.Has)...)
	c := m.Call(UnlockScript, u.Id.Key, fast, listOf(u.Waiters...), words...)
	if len(u.Waiters) > 0 {
		c.Confirm = m.Confirm
	}
	return c
}

// releaseWords are the words of unlock.lua behind `wanted`.
func (m *Maker) releaseWords(id names.Lock, p Proof, how How, has string) []string {
	return []string{p.Kind, orDash(p.Value), m.retention, m.Proxy, m.unit(),
		strconv.Itoa(id.DB), m.slotTag(id.Key), string(how), milliseconds(Reservation),
		milliseconds(pollPatience), milliseconds(pollReservation), has}
}

// Done makes a call of done.lua, which stores a value and frees the claim to it. stored are the
// value and how long it lives, as done.lua takes them.
func (m *Maker) Done(id names.Lock, p Proof, value string, stored FastArgs) Call {
	c := m.Call(doneScript, id.Key, stored, "", p.Value, m.retention,
		strconv.Itoa(id.DB), m.slotTag(id.Key), m.Proxy)
	c.More = []string{value, keyname.Record([]byte(value))}
	return c
}

// fastUnlock is UNLOCK's fast path. It knows only ms, a holder's proof, no takeover guard, and no
// waiters that the caller may not name.
func (m *Maker) fastUnlock(p Proof, wanted string, waiters []Request) FastArgs {
	if m.Seconds || m.TakeoverGuard > 0 || p.Kind != "token" && p.Kind != "connection" {
		return NoFastPath
	}
	fast := FastArgs{m.retention, p.Value, wanted}
	switch wanted {
	case "none":
	case "next", "fair":
		r := waiters[0]
		if r.Shared {
			return NoFastPath
		}
		lives := r.Timeout + m.Retention
		proxy := m.Proxy
		if wanted == "fair" {
			proxy = "-"
		}
		fast[2] = proxy + " " + milliseconds(r.Timeout) + " " + milliseconds(lives) + " " +
			r.holderFields()
	default:
		return NoFastPath
	}
	return fast
}

// slotTag is `tag` of unlock.lua.
func (m *Maker) slotTag(key string) string {
	if !m.Cluster {
		return "-"
	}
	return keyname.SlotTag(keyname.SlotOf([]byte(key)))
}

// orDash is s, or a dash for an empty argument.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
