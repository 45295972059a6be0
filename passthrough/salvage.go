package passthrough

// How the connection of a session that ends is kept for others of its login, where no further one could be logged in: what the
// session has left on it is taken back.

import (
	"time"

	"lockproxy/internal/resp"
)

// salvage begins with that, if it is worth it and can be done: nothing is owed, and the upstream can be told to forget what there is. The
// client has gone, or is given nothing more.
func (p *Pipe) salvage() bool {
	p.mu.Lock()
	id, can := p.ledger.Identity, p.up != nil && p.lost == nil && !p.leaving && !p.ending && !p.broken && p.ledger.salvageable()
	p.mu.Unlock()
	if !can || !p.lanes.scarce(id) {
		return false
	}
	p.mu.Lock()
	commands := p.ledger.cleanup()
	var out []byte
	for _, c := range commands {
		p.ledger.push(entry{Expect: c.Expect})
		out = resp.AppendCommand(out, c.name)
	}
	p.salvaging, p.leaving, p.held, p.kept, p.large = true, true, false, false, 0
	p.ledger.replyOff, p.ledger.skipNext = false, false // it is the proxy that leaves replies out
	p.up.SetReadDeadline(time.Now().Add(linger))
	up, upw := p.up, p.upw
	if len(commands) == 0 {
		p.lookLocked()
	}
	p.mu.Unlock()
	if len(out) > 0 {
		if _, err := upw.Write(out); err != nil {
			up.Close()
		}
	}
	return true
}

// scarce reports whether connections of a login can't be replaced, and are wanted.
func (ls *Lanes) scarce(id Identity) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g := ls.groups[loginOf(id)]
	return g != nil && g.stale && (len(g.line) > 0 || len(g.idle) < ls.worthKeeping(g))
}

// salvageable reports whether cleanup makes a connection Shareable.
func (l *ledger) salvageable() bool {
	return l.empty() && l.Trusted && !l.Opaque && !l.Raw && !l.monitor && !l.tracking && !l.marked && !l.stays
}

// cleaning is a request that ends something.
type cleaning struct {
	name string
	Expect
}

// cleanup are the requests that bring a connection which is salvageable back to what a new one is.
func (s *State) cleanup() (commands []cleaning) {
	add := func(needed bool, name string, effect Effect) {
		if needed {
			commands = append(commands, cleaning{name, Expect{Effect: effect}})
		}
	}
	add(s.InMulti, "DISCARD", Discard)
	add(s.Watching && !s.InMulti, "UNWATCH", Unwatch)
	add(s.channels > 0, "UNSUBSCRIBE", Unsubscribe)
	add(s.patterns > 0, "PUNSUBSCRIBE", PUnsubscribe)
	add(s.shard > 0, "SUNSUBSCRIBE", SUnsubscribe)
	return commands
}
