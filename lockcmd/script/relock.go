package script

import (
	"strconv"
	"time"

	"lockproxy/internal/names"
)

// Relock makes the lock of a token run for timeout. session marks a renewal by the proxy.
func (m *Maker) Relock(
	id names.Lock, token string, timeout time.Duration, session bool,
) *Call {
	purpose := "extend"
	if session {
		purpose = "renew"
	}
	return m.relock(id, token, timeout, "", purpose)
}

func (m *Maker) relock(
	id names.Lock, token string, timeout time.Duration, requests string, purpose ...string,
) *Call {
	words := append([]string{token, milliseconds(timeout), m.unit(), m.retention}, purpose...)
	c := m.Call(RelockScript, id.Key, NoFastPath, requests, words...)
	c.Confirm = m.Confirm
	return &c
}

// Share is Relock that makes an exclusive lock a shared one. u says what the waiters here want.
func (m *Maker) Share(u Release, timeout time.Duration) *Call {
	all := append([]Request{{Timeout: timeout, Connection: "-", Number: "0", Client: "-",
		Shared: true}}, u.Waiters...)
	return m.relock(u.Id, u.Proof.Value, timeout, listOf(all...), "share", u.Wanted,
		m.Proxy, string(u.How), strconv.Itoa(u.Id.DB), m.slotTag(u.Id.Key))
}

// TakeOver is Relock that makes the lock of a place in the line that of a request, unless another
// connection was given it, too.
func (m *Maker) TakeOver(id names.Lock, token int64, place string, r Request) *Call {
	return m.relock(id, strconv.FormatInt(token, 10), r.Timeout, listOf(r), "take", place)
}

// OthersShare and OtherExcludes are what Exclude's script returns if others share the lock, and if
// one of them waits for the same.
const (
	OthersShare   = -1
	OtherExcludes = -2
)

// Exclude is Relock that makes a shared lock exclusive, for a request. Nobody else is let in while
// that waits; how is the proxy's way to the upstream.
func (m *Maker) Exclude(id names.Lock, token string, r Request, waits bool, how How) *Call {
	return m.relock(id, token, r.Timeout, listOf(r), "exclude", Flag(waits), m.Proxy, string(how))
}
