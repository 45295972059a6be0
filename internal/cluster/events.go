package cluster

// Keyspace notifications: a node tells what happens to its own keys, and only its own subscribers.

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// events are the client's subscriptions to keyspace notifications, which each master sends for its
// own keys. So all other masters have a copy of such a subscription. From a copy the client is sent
// notifications only: anything else also comes from the node of all channels. When a master is lost
// the one in its place gets a copy. Conn.mu is held in all methods.
type events struct {
	c        *Conn
	wanted   map[eventName]bool
	followed time.Time // when follow was last called
}

// eventName is a channel or a pattern.
type eventName struct {
	pattern bool
	name    string
}

// copies are the subscriptions at a node that are there for notifications only.
type copies struct {
	commands.Subscriptions
	made bool // the node has been asked for all that are wanted
}

// eventPrefixes begin the channels of notifications.
var eventPrefixes = []string{"__keyspace@", "__keyevent@"}

func isEvent(channel string) bool {
	for _, prefix := range eventPrefixes {
		if strings.HasPrefix(channel, prefix) {
			return true
		}
	}
	return false
}

// canBeEvents reports whether notifications can come by a channel or a pattern.
func (e eventName) canBeEvents() bool {
	i := strings.IndexAny(e.name, `*?[\`)
	if !e.pattern || i < 0 {
		return isEvent(e.name)
	}
	for _, prefix := range eventPrefixes {
		if strings.HasPrefix(e.name[:i], prefix) || strings.HasPrefix(prefix, e.name[:i]) {
			return true
		}
	}
	return false
}

// subscribe asks all other masters to change their copies as q says, a SUBSCRIBE, PSUBSCRIBE or the
// opposite, and then sends q to n. The client gets no confirmation before theirs have come.
func (e *events) subscribe(q *query, n *node) *request {
	pattern := q.cmd.Effect == commands.PSubscribe || q.cmd.Effect == commands.PUnsubscribe
	adds := q.cmd.Effect == commands.Subscribe || q.cmd.Effect == commands.PSubscribe
	args := append([][]byte(nil), q.args[0])
	if len(q.args) == 1 {
		maps.DeleteFunc(e.wanted, func(s eventName, _ bool) bool {
			if s.pattern == pattern {
				args = append(args, []byte(s.name))
			}
			return s.pattern == pattern
		})
	}
	for _, arg := range q.args[1:] {
		s := eventName{pattern, string(arg)}
		switch {
		case adds && s.canBeEvents():
			if len(args) == 1 {
				e.follow() // before there is more to ask for
			}
			args, e.wanted[s] = append(args, arg), true
		case !adds && e.wanted[s]:
			args = append(args, arg)
			delete(e.wanted, s)
		}
	}
	var r *request
	if len(args) > 1 {
		e.ask(args, func(copied *node) { copied.lastAnswered = r })
	}
	r = e.c.send(newRequest(q.raw, -1), n)
	return r
}

// ask sends a request to all nodes that have copies, and calls answered with each that has
// answered.
func (e *events) ask(args [][]byte, answered func(n *node)) {
	var nodes []*node
	for _, n := range e.c.nodes.byAddr {
		if n.copies.made && n != e.c.subs.channels {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return
	}
	r := e.c.askAll(nodes, resp.AppendCommand(nil, args...), func([][]byte) []byte { return nil })
	r.onAnswer = func(n *node, _ resp.Head) { answered(n) }
	r.copies, r.intercept = true, noRedirects
	r.eachPart(func(p *part) { p.confirms = len(args) - 1 })
}

// follow asks each master without copies for them.
func (e *events) follow() {
	e.followed = time.Now()
	if e.c.nodes.slots == nil {
		return
	}
	for _, n := range e.c.nodes.atAll(e.c.nodes.slots.masters) {
		if n == e.c.subs.channels || n.copies.made {
			continue
		}
		n.copies.made, n.used = true, true
		for name := range e.wanted {
			command := "SUBSCRIBE"
			if name.pattern {
				command = "PSUBSCRIBE"
			}
			r := e.c.ownRequest(resp.AppendCommand(nil, command, name.name))
			r.copies, r.one.confirms = true, 1
			n.push(&r.one)
		}
	}
}

// refreshed is called with each map, and with one that has changed.
func (e *events) refreshed(changed bool) {
	if len(e.wanted) > 0 && (changed || time.Since(e.followed) >= refreshInterval) {
		e.follow()
	}
}

// isForClient reports whether the client is to see a message that n has sent, of which raw has the
// beginning; known is false if that does not tell. A replica that was a master tells what happens to
// the new one's keys too.
func (e *events) isForClient(n *node, h resp.Head, raw []byte) (isFor, known bool) {
	at := map[string]int{"message": 1, "pmessage": 2}[string(h.Elem)]
	if at == 0 || len(e.wanted) == 0 && n.copies.All() == 0 {
		return true, true
	}
	channel, known := elemOf(raw, at)
	if !known {
		return true, false
	}
	if !isEvent(string(channel)) {
		return n == e.c.subs.channels, true
	}
	m := e.c.nodes.slots
	return m == nil || slices.Contains(m.masters, n.addr), true
}

// elemOf is the element at a place in an aggregate of bulk strings, of which raw has the beginning;
// ok is false if it has too little.
func elemOf(raw []byte, at int) (elem []byte, ok bool) {
	_, raw, ok = bytes.Cut(raw, crlf)
	for ; ok; at-- {
		line, rest, _ := bytes.Cut(raw, crlf)
		size, valid := resp.ParseInt(line[min(1, len(line)):])
		switch {
		case !valid || size < 0 || int64(len(rest))-2 < size:
			return nil, false
		case at == 0:
			return rest[:size], true
		}
		raw = rest[size+2:]
	}
	return nil, false
}
