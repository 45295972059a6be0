package passthrough

import "cmp"

// Others than the session use its home, from any goroutine, while nothing is under way there. The
// session itself adds what the client is owed before it writes, so that is all to check.

// idLocked is home.id. mu is held.
func (c *client) idLocked() int64 {
	if c.home == nil {
		return unknowable
	}
	// That of a connection to a cluster is known once it has been shown.
	if numbered, ok := c.home.Conn.(interface{ Number() int64 }); ok {
		return cmp.Or(numbered.Number(), unknowable)
	}
	if c.home.id == 0 {
		c.home.id = c.pending.number
	}
	return c.home.id
}

// unknowable is the number of a home that there is not, or of which Redis does not tell it.
const unknowable = -1

// asideLocked sends a request by the home, for whose reply it will be owed e. It returns false, and
// sends nothing, if anything is under way. mu is held.
func (c *client) asideLocked(e pendingReply, raw []byte) (sent bool) {
	if !c.canAskLocked() || !c.setRoute(byHome) {
		return false
	}
	c.pending.push(e)
	c.home.writeIdle(raw)
	return true
}

// canAskLocked reports whether there is a home by which nothing is under way. mu is held.
func (c *client) canAskLocked() bool {
	return c.home != nil && c.home.phase != closing && c.end == notEnding && !c.needsHome.open &&
		!c.needsHome.pinned && !c.within && !c.pending.fresh && c.pending.empty() &&
		c.pending.Plain()
}
