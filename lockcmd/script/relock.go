package script

import (
	"time"

	"lockproxy/internal/names"
)

// Relock makes the lock of a token run for timeout. session marks a renewal by the proxy.
func (m *Maker) Relock(
	id names.Lock, token string, timeout time.Duration, session bool,
) *Call {
	c := m.Call(RelockScript, id.Key, NoFastPath, "",
		token, milliseconds(timeout), m.unit(), m.retention, Flag(session))
	c.Confirm = m.Confirm
	return &c
}
