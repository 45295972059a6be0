package passthrough

// A home can serve other clients after its own. Nothing of one client may reach the next: a home is
// closed unless it is certain that it is as new, or that RESET makes it so.

import (
	"lockproxy/internal/monotonic"
	"lockproxy/internal/upstream"
)

// releaseHomeLocked lets clients to come have the home, if they can. Otherwise it returns false, and
// the home must be closed. mu is held.
func (c *client) releaseHomeLocked() (released bool) {
	h := c.home
	idle := c.route == byLane || c.route == byHome && c.pending.empty()
	// A reader that waits for the client would not leave.
	unread, _, _ := c.out.status()
	if unread || h == nil || h.phase == closing || !idle || c.within || h.early != nil ||
		h.replies.scan.Began() || c.needsHome.any() || c.pending.fresh ||
		c.pending.Has(notForOthers) || !c.pool.numbers.hidden(h.given.numbersShown) ||
		!c.pool.takesSpare() {
		return false
	}
	given := &h.given
	given.server, given.used, given.nobody = c.where.server, true, false
	given.heardAt, given.labels = h.heardAt, c.pending.Labels
	// RESET ends the silence of one that Redis could soon take for idle.
	given.asNew = !c.pending.Has(Watching) && c.pending.Admitted &&
		c.pending.Setup == (upstream.Setup{Identity: c.pending.initial}) &&
		monotonic.Since(h.heardAt) < c.pool.spareLife()
	h.becomes(left)
	c.home = nil
	h.Leave()
	return true
}
