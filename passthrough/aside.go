package passthrough

// What others than the session do with its home, from any goroutine, while nothing is under way
// there: the session itself adds what the client is owed before it writes, so that is all to check.

import (
	"strconv"

	"lockproxy/internal/resp"
)

// KeepAlive keeps Redis from taking the client for idle (its `timeout`), by a request that each
// client may send that takes locks. A client with anything under way is not idle.
func (p *Pipe) KeepAlive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.canAskLocked() {
		return
	}
	if many, ok := p.home.conn.(interface{ KeepAlive([]byte) }); ok { // a cluster's, to each node
		many.KeepAlive(timeRequest)
		return
	}
	p.asideLocked(pendingReply{kind: discarded}, timeRequest)
}

// ClientID is the home's number, as CLIENT ID tells it, or -1 if there is none. It is 0 while
// it is not known: known is closed once it is, or nil if it cannot be asked for now.
func (p *Pipe) ClientID() (id int64, known <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.home
	switch {
	case h == nil:
		return -1, nil
	case h.id != 0:
		return h.id, nil
	case h.asked != nil:
		return 0, h.asked
	}
	asked := make(chan struct{})
	replied := func(head resp.Head) {
		h.id = -1
		if n, err := strconv.ParseInt(string(head.Line), 10, 64); err == nil && head.Type == ':' {
			h.id = n
		}
		close(asked)
	}
	e := pendingReply{kind: discarded, Expect: Expect{Replied: replied}}
	if !p.asideLocked(e, clientIDRequest) {
		return 0, nil
	}
	h.asked = asked
	return 0, asked
}

var (
	timeRequest     = resp.AppendCommand(nil, "TIME")
	clientIDRequest = resp.AppendCommand(nil, "CLIENT", "ID")
)

// asideLocked sends a request by the home, for whose reply it will be owed e. It returns false, and
// sends nothing, if anything is under way. mu is held.
func (c *client) asideLocked(e pendingReply, raw []byte) (sent bool) {
	if !c.canAskLocked() || !c.setRoute(byHome) {
		return false
	}
	h := c.home
	c.pending.push(e)
	n, err := h.tryWrite(raw)
	if !h.writesAtOnce() {
		n, err = h.rw.Write(raw) // it finds room: nothing was sent that has not been answered
	}
	if err != nil || n < len(raw) {
		h.close() // the reader reports the loss
	}
	return true
}

// canAskLocked reports whether there is a home by which nothing is under way. mu is held.
func (c *client) canAskLocked() bool {
	return c.home != nil && !c.home.closing && c.end == notEnding && !c.needsHome.open &&
		!c.needsHome.pinned && !c.within && !c.pending.fresh && c.pending.empty() &&
		c.pending.Plain()
}
