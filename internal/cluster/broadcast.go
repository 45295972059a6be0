package cluster

// The requests that change settings, which go to all nodes.

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// broadcast sends a request to the default node and all others that the client has used. done is
// called with the outcome. The client does not wait for nodes that it has not used, which can be
// silent: spare is called for the connections to these.
func broadcast(c *Conn, q *query, spare func(n *node), done func(ok bool)) *request {
	dflt := c.nodes.defaultNode()
	nodes := []*node{dflt}
	for _, n := range slices.Collect(maps.Values(c.nodes.byAddr)) {
		switch {
		case n == dflt:
		case n.used:
			nodes = append(nodes, n)
		default:
			spare(n)
		}
	}
	return c.askAll(nodes, q.raw, func(replies [][]byte) []byte {
		refused := slices.ContainsFunc(replies, isError)
		done(!refused)
		if refused {
			return failureOf(replies)
		}
		return replies[0]
	})
}

// broadcastSetting broadcasts a request for which settings were changed, and reverts the change if
// a node refuses it. done is called if none does.
func broadcastSetting(
	c *Conn, q *query, before settings, spare func(n *node), done func(),
) *request {
	after := c.settings
	return broadcast(c, q, spare, func(ok bool) {
		if ok {
			done()
		} else {
			c.settings.revert(before, after)
		}
	})
}

var errInPart = errors.New("it is unknown which nodes have logged the client in or out")

// decides marks a request that sets the client's user or protocol at all nodes. The Conn ends if a
// node is lost that may have run it: the nodes could disagree.
func (c *Conn) decides(r *request) {
	c.subs.changing++
	finish := r.finish
	r.finish = func(replies [][]byte) []byte {
		reply := finish(replies)
		c.subs.changing--
		if isFailure(reply) {
			c.after(0, func() { c.end(errInPart) })
		}
		return reply
	}
}

// login is AUTH and HELLO.
func login(c *Conn, q *query) {
	before, asked := c.settings, commands.ParseLogin(q.args)
	switch {
	case asked.User != nil:
		c.settings.set("auth", []byte("AUTH"), asked.User, asked.Password)
	case asked.Password != nil:
		c.settings.set("auth", []byte("AUTH"), asked.Password)
	}
	proto := int(asked.Proto)
	if proto == 2 || proto == 3 {
		c.settings.set("hello", q.args[:2]...)
	}
	if asked.Name != nil {
		c.settings.set("setname", []byte("CLIENT"), []byte("SETNAME"), asked.Name)
	}
	// A spare connection is opened again: a node that refuses the login must run nothing.
	dflt := c.nodes.defaultNode()
	r := broadcastSetting(c, q, before, c.nodes.reopen, func() {
		if proto == 2 || proto == 3 {
			c.settings.proto = proto
		}
	})
	c.decides(r)
	finish := r.finish
	r.finish = func(replies [][]byte) []byte { return showHelloID(finish(replies), dflt.addr) }
}

// connSetting is CLIENT SETNAME, SETINFO, NO-EVICT and NO-TOUCH.
func connSetting(c *Conn, q *query) {
	before := c.settings
	c.settings.set(q.cmd.Name[strings.LastIndexByte(q.cmd.Name, '|')+1:], q.args...)
	broadcastSetting(c, q, before, func(n *node) { n.sendOwn(q.raw) }, func() {})
}

// tracking is CLIENT TRACKING.
func tracking(c *Conn, q *query) {
	isRedirect := func(arg []byte) bool { return strings.EqualFold(string(arg), "redirect") }
	if slices.ContainsFunc(q.args[2:], isRedirect) {
		c.replies.answer(resp.AppendError(nil, "ERR CLIENT TRACKING with REDIRECT can't be used "+
			"on a cluster as a whole: use HELLO 3, and the messages come on this connection"))
		return
	}
	before, on := c.settings, q.cmd.Effect == commands.TrackingOn
	c.settings.set("tracking", q.args...)
	c.settings.tracking = c.settings.tracking || on
	broadcastSetting(c, q, before, func(n *node) { n.sendOwn(q.raw) }, func() {
		c.settings.tracking = on
	})
}

// clientCaching is CLIENT CACHING, which is about the next request, whichever nodes that goes to.
func clientCaching(c *Conn, q *query) {
	toDefault(c, q)
	c.tx.caching = append([]byte(nil), q.raw...)
}

// reset is RESET: all connections become like new ones, without a login, and so do later ones.
func reset(c *Conn, q *query) {
	if len(q.args) > 1 {
		toDefault(c, q) // it is refused, and changes nothing
		return
	}
	c.tx.forgetWatch()
	c.tx.open = nil
	c.settings = settings{proto: 2, reset: true}
	r := broadcast(c, q, c.nodes.reopen, func(bool) {})
	c.decides(r)
	r.onAnswer = func(n *node, h resp.Head) {
		if !h.IsError() {
			n.state, n.copies = nodeState{}, copies{}
		}
	}
	clear(c.subs.shards)
	clear(c.subs.told)
	clear(c.subs.events.wanted)
}
