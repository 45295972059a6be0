package passthrough

// A home can serve other clients after its own. Nothing of one client may reach the next: a home is
// closed unless it is certain that it is as new, or that RESET makes it so.

import (
	"context"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/upstream"
)

// maxSpares is how many spares there are at most, with those that clients have given back. While
// there are more homes, there can be as many spares as homes, up to manySpares: clients that log
// in, ask and leave would not find one otherwise when many of them come at once.
const (
	maxSpares  = 32
	manySpares = 128
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

// takesSpare reports whether there is room for another spare, and keeps it free for that. Where
// clients share nothing, each has a connection that no other has had.
func (p *Pool) takesSpare() bool {
	room := max(maxSpares, min(int(p.homes.open.Load()), manySpares))
	s := &p.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Spares == 0 || p.LanesPerKey == 0 || s.closed || len(s.list)+s.coming >= room {
		return false
	}
	s.coming++
	return true
}

// giveBack makes a spare of what a client does not need any more, if it is still open. It does not
// wait for Redis. The reader of the connection has ended.
func (p *Pool) giveBack(given spare, open bool) {
	if given.asNew || !open {
		p.spareCame(given, open && upstream.Fresh(given.Conn))
		return
	}
	// Ends within DialTimeout, or at once when Close is called, which waits for it.
	p.goroutines.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
		defer cancel()
		var err error
		asked := p.door.asks()
		given.server, given.nobody, err = p.Upstream.Reset(ctx, given.Conn, given.server,
			given.labels)
		given.heardAt = monotonic.Now()
		if err == nil {
			p.door.reset(asked, given.nobody)
		}
		p.spareCame(given, err == nil)
	})
}

// spareCame adds what there was room for, or closes it, if it is open.
func (p *Pool) spareCame(given spare, good bool) {
	s := &p.spares
	s.mu.Lock()
	s.coming--
	added := good && p.addLocked(given)
	s.mu.Unlock()
	if !added && given.Conn != nil {
		upstream.CloseAndWait(given.Conn)
	}
}
