package cluster

// Copies of subscriptions. A node tells what happens to its own keys to its own subscribers only,
// and PUBLISH counts only those at its node.

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// events are the client's subscriptions as all other nodes have to know them. Each master sends
// keyspace notifications for its own keys, so it has a copy of what they can come by. When another
// node becomes that of all channels, it has a copy of everything, so that PUBLISH counts the client.
// From a copy the client is sent notifications only: anything else also comes from the node that it
// has subscribed at. When a master is lost the one in its place gets a copy. Conn.mu is held in all
// methods.
type events struct {
	c        *Conn
	wanted   map[eventName]bool // all subscriptions
	eventful int                // those of which that notifications can come by
	followed time.Time          // when follow was last called
}

// eventName is a channel or a pattern.
type eventName struct {
	pattern bool
	name    string
}

// copies are the subscriptions at a node that are there for notifications, or to be counted.
type copies struct {
	commands.Subscriptions
	made bool // the node has been asked for all that notifications can come by
	all  bool // and for everything else
}

// eventPrefixes begin the channels of notifications.
var eventPrefixes = []string{"__keyspace@", "__keyevent@"}

func isEvent(channel string) bool {
	return slices.ContainsFunc(eventPrefixes, func(prefix string) bool {
		return strings.HasPrefix(channel, prefix)
	})
}

// canBeEvents reports whether notifications can come by a channel or a pattern.
func (e eventName) canBeEvents() bool {
	i := strings.IndexAny(e.name, `*?[\`)
	if !e.pattern || i < 0 {
		return isEvent(e.name)
	}
	return slices.ContainsFunc(eventPrefixes, func(prefix string) bool {
		return strings.HasPrefix(e.name[:i], prefix) || strings.HasPrefix(prefix, e.name[:i])
	})
}

// subscribe asks all other nodes to change their copies as q says, a SUBSCRIBE, PSUBSCRIBE or the
// opposite, and then sends q to n. The client gets no confirmation before theirs have come.
func (e *events) subscribe(q *query, n *node) *request {
	pattern := q.cmd.Effect == commands.PSubscribe || q.cmd.Effect == commands.PUnsubscribe
	adds := q.cmd.Effect == commands.Subscribe || q.cmd.Effect == commands.PSubscribe
	var names []eventName
	for _, arg := range q.args[1:] {
		if name := (eventName{pattern, string(arg)}); e.wanted[name] != adds {
			names = append(names, name)
		}
	}
	for name := range e.wanted {
		if len(q.args) == 1 && name.pattern == pattern {
			names = append(names, name)
		}
	}
	if adds && (n.addr != e.c.nodes.lowest() || slices.ContainsFunc(names, eventName.canBeEvents)) {
		e.follow(true) // before there is more to ask for
	}
	for _, name := range names {
		e.want(name, adds)
	}
	var r *request
	copied := func(copied *node) { copied.lastAnswered = r }
	for _, other := range e.c.nodes.byAddr {
		if args := other.copied(q.args[0], names); len(args) > 1 && other != n {
			e.ask(other, args, copied)
		}
	}
	r = e.c.send(newRequest(q.raw, -1), n)
	r.onAnswer = func(_ *node, h resp.Head) {
		for _, name := range names {
			if h.IsError() { // the nodes with copies have refused it too
				e.want(name, !adds)
			}
		}
	}
	return r
}

// want records that the client has subscribed, or does not any more.
func (e *events) want(name eventName, wanted bool) {
	if e.wanted[name] == wanted {
		return
	}
	change := 1
	if delete(e.wanted, name); wanted {
		e.wanted[name] = true
	} else {
		change = -1
	}
	if name.canBeEvents() {
		e.eventful += change
	}
}

// copied is a command and those of names that n has copies of.
func (n *node) copied(command []byte, names []eventName) (args [][]byte) {
	args = append(args, command)
	for _, name := range names {
		if n.copies.all || n.copies.made && name.canBeEvents() {
			args = append(args, []byte(name.name))
		}
	}
	return args
}

// ask sends a request to a node that has copies, and calls answered when it has answered.
func (e *events) ask(n *node, args [][]byte, answered func(n *node)) {
	r := e.c.askAll([]*node{n}, resp.AppendCommand(nil, args...),
		func([][]byte) []byte { return nil })
	r.onAnswer = func(n *node, _ resp.Head) { answered(n) }
	r.copies, r.intercept = true, noRedirects
	r.parts[0].confirms = len(args) - 1
}

// follow asks each master for the copies that it lacks. first says that the client is about to
// subscribe to what notifications can come by.
func (e *events) follow(first bool) {
	e.followed = time.Now()
	if e.c.nodes.slots == nil {
		return
	}
	for _, addr := range e.c.nodes.slots.masters {
		all := addr == e.c.nodes.lowest()
		if !all && e.eventful == 0 && !first {
			continue
		}
		if n := e.c.nodes.at(addr); n != e.c.subs.channels {
			e.copyTo(n, all)
		}
	}
}

// copyTo asks n for the copies that it lacks; all says that it must have everything.
func (e *events) copyTo(n *node, all bool) {
	had := n.copies
	n.copies.made, n.copies.all, n.used = true, had.all || all, true
	var last *request
	for name := range e.wanted {
		if name.canBeEvents() && had.made || had.all || !name.canBeEvents() && !all {
			continue
		}
		command := "SUBSCRIBE"
		if name.pattern {
			command = "PSUBSCRIBE"
		}
		last = e.c.ownRequest(resp.AppendCommand(nil, command, name.name))
		last.copies, last.one.confirms = true, 1
		n.push(&last.one)
	}
	if last != nil && all {
		e.c.cluster.copies(e.c, true)
		last.finish = func([][]byte) []byte {
			e.c.cluster.copies(e.c, false)
			return nil
		}
	}
}

// refreshed is called with each map, and with one that has changed.
func (e *events) refreshed(changed bool) {
	if len(e.wanted) > 0 && (changed || time.Since(e.followed) >= refreshInterval) {
		e.follow(false)
	}
}

// isForClient reports whether the client is to see a message that n has sent, of which raw has the
// beginning; known is false if that does not tell. A replica that was a master tells what happens to
// the new one's keys too.
func (e *events) isForClient(n *node, h resp.Head, raw []byte) (isFor, known bool) {
	at := map[string]int{"message": 1, "pmessage": 2}[string(h.Elem)]
	if at == 0 || e.eventful == 0 && n.copies.All() == 0 {
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
