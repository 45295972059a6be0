package cluster

// CLIENT ID, INFO, LIST, KILL and UNBLOCK, and the number in the reply to HELLO.

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"lockproxy/internal/resp"
)

// clientID is CLIENT ID. Its number is for others to use, so those of all the client's connections
// are learned, also of later ones.
func clientID(c *Conn, q *query) {
	c.nodes.identified = true
	c.nodes.defaultNode()
	for _, n := range c.nodes.byAddr {
		if n.id == 0 {
			n.learnID()
		}
	}
	showing(c, q, func(raw []byte, addr string) []byte {
		if v, err := resp.ParseValue(raw); err == nil && v.Type == ':' {
			return integer(c.cluster.numberOf(c, clientRef{addr, v.Int}))
		}
		return raw
	})
}

// clientInfo is CLIENT INFO.
func clientInfo(c *Conn, q *query) {
	showing(c, q, func(raw []byte, addr string) []byte {
		text, ok := textOf(raw)
		line := clientLine{node: addr, text: text}
		if !ok || !line.read() {
			return raw
		}
		line.number = c.cluster.numberOf(c, clientRef{addr, line.id})
		return textReply(raw[0], line.shown())
	})
}

// showing asks the default node, and changes the answer by show, which is told the node's address.
func showing(c *Conn, q *query, show func(raw []byte, addr string) []byte) {
	r := newRequest(q.raw, -1)
	var by *node
	r.onAnswer = func(n *node, _ resp.Head) { by = n }
	r.finish = func(replies [][]byte) []byte {
		if by == nil {
			return replies[0]
		}
		return show(replies[0], by.addr)
	}
	c.send(r, nil)
}

// clientList is CLIENT LIST. With ID it asks the nodes that those numbers are of.
func clientList(c *Conn, q *query) {
	if c.nodes.slots == nil {
		noNodes(c)
		return
	}
	nodes := c.nodes.atAll(c.nodes.slots.masters)
	raws := slices.Repeat([][]byte{q.raw}, len(nodes))
	if len(q.args) > 3 && strings.EqualFold(string(q.args[2]), "id") {
		refs, ok := c.namedBy(q, 3, len(q.args))
		if !ok {
			return
		}
		nodes, raws = c.perNode(q, 3, len(q.args), refs)
	}
	c.askEach(nodes, raws, joinReplies(func(replies [][]byte) []byte {
		return c.cluster.joinLists(replies, nodes)
	}, false))
}

// connectionOf is the connection with a shown number, or one that the default node does not have.
func (c *Conn) connectionOf(shown int64) clientRef {
	dflt := c.nodes.defaultNode()
	addrs := []string{dflt.addr}
	if c.nodes.slots != nil {
		addrs = c.nodes.slots.masters
	}
	if ref, ok := refOf(shown, addrs); ok {
		return ref
	}
	return clientRef{dflt.addr, nobody}
}

// errKilled is why a Conn ends whose client was killed.
var errKilled = errors.New("closed by CLIENT KILL")

// clientKill is CLIENT KILL. By an ID a node ends its connection, and then the Conn of this
// connection ends, if it is known.
func clientKill(c *Conn, q *query) {
	at := 0
	for i := 2; i+1 < len(q.args) && at == 0; i += 2 {
		if strings.EqualFold(string(q.args[i]), "id") {
			at = i + 1
		}
	}
	if at == 0 {
		toMasters(c, q)
		return
	}
	refs, ok := c.namedBy(q, at, at+1)
	if !ok {
		return
	}
	conn, _ := c.cluster.clientOf(refs[0])
	nodes, raws := c.perNode(q, at, at+1, refs)
	c.askEach(nodes, raws, func(replies [][]byte) []byte {
		if v, err := resp.ParseValue(replies[0]); err == nil && v.Int > 0 && conn != nil {
			c.goroutines.Go(func() { // ends at once; Close waits for it
				conn.mu.Lock()
				defer conn.mu.Unlock()
				conn.end(errKilled)
			})
		}
		return replies[0]
	})
}

// clientUnblock is CLIENT UNBLOCK. All nodes that the client has a connection to are asked: it can
// block at any.
func clientUnblock(c *Conn, q *query) {
	if len(q.args) < 3 {
		toDefault(c, q)
		return
	}
	if refs, ok := c.namedBy(q, 2, 3); ok {
		_, refs = c.cluster.clientOf(refs[0])
		nodes, raws := c.perNode(q, 2, 3, refs)
		c.askEach(nodes, raws, joinReplies(joinMax, true))
	}
}

// unblockRights is LOCKPROXY.UNBLOCK key [TIMEOUT|ERROR]. By it the proxy learns whether the client
// may CLIENT UNBLOCK another one, which waits for a lock. The reply is that of the lock's node if
// there is no such client. Other nodes can be silent.
func unblockRights(c *Conn, q *query) {
	if len(q.args) < 2 {
		c.replies.answer([]byte("-ERR wrong number of arguments for 'lockproxy.unblock' command\r\n"))
		return
	}
	words := append([][]byte{[]byte("CLIENT"), []byte("UNBLOCK"), []byte("0")}, q.args[2:]...)
	r := newRequest(resp.AppendCommand(nil, words...), Slot(q.args[1]))
	r.keyless = true
	c.send(r, nil)
}

// namedBy is the connections whose numbers are q's arguments from and on, before to. If one is no
// number ok is false, and a node says so.
func (c *Conn) namedBy(q *query, from, to int) (refs []clientRef, ok bool) {
	for _, arg := range q.args[from:to] {
		shown, valid := resp.ParseInt(arg)
		if !valid || shown <= 0 {
			toDefault(c, q)
			return nil, false
		}
		refs = append(refs, c.connectionOf(shown))
	}
	return refs, true
}

// perNode is the nodes of these connections, and q for each: with its numbers of them in place of
// the arguments from and on, before to.
func (c *Conn) perNode(q *query, from, to int, refs []clientRef) (nodes []*node, raws [][]byte) {
	ids := map[string][][]byte{}
	for _, ref := range refs {
		ids[ref.addr] = append(ids[ref.addr], strconv.AppendInt(nil, ref.id, 10))
	}
	for _, addr := range slices.Sorted(maps.Keys(ids)) {
		nodes = append(nodes, c.nodes.at(addr))
		args := slices.Concat(q.args[:from], ids[addr], q.args[to:])
		raws = append(raws, resp.AppendCommand(nil, args...))
	}
	return nodes, raws
}

// showHelloID replaces the number in a node's reply to HELLO.
func showHelloID(raw []byte, shown func(id int64) int64) []byte {
	kind, elems, err := resp.Elements(raw)
	if err != nil || kind != '*' && kind != '%' {
		return raw
	}
	for i := 0; i+1 < len(elems); i += 2 {
		id, err := resp.ParseValue(elems[i+1])
		if string(elems[i]) == "$2\r\nid\r\n" && err == nil && id.Type == ':' {
			elems[i+1] = integer(shown(id.Int))
		}
	}
	return resp.AppendAggregate(nil, kind, elems)
}
