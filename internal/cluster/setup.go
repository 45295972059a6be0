package cluster

// What a user does to a connection, and every node's must be told: those that are open at once, further ones when they are opened.

import (
	"bytes"
	"fmt"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// setup is what further nodes are told before anything else.
type setup struct {
	proto    int  // of the replies
	reset    bool // what Dial's connections begin with isn't wanted any more
	tracking bool // CLIENT TRACKING is on
	told     [len(replayed)][]byte
}

// replayed are the names under which commands are kept, in the order in which a node is told them.
var replayed = [...]string{"auth", "hello", "setname", "lib-name", "lib-ver", "no-evict", "no-touch", "tracking"}

var resetCommand = resp.AppendCommand(nil, "RESET")

func (s *setup) replay() (raws [][]byte) {
	if s.reset {
		raws = append(raws, resetCommand)
	}
	for _, raw := range s.told {
		if raw != nil {
			raws = append(raws, raw)
		}
	}
	return raws
}

// tell sends a request to all nodes that there is a connection to. done is called with the outcome.
func (c *Conn) tell(q *query, done func(ok bool, reply []byte)) *request {
	home := c.homeNode()
	nodes := []*node{home}
	for _, n := range c.nodes {
		if n != home {
			nodes = append(nodes, n)
		}
	}
	r := c.splitRequest(len(nodes), func(replies [][]byte) []byte {
		for _, raw := range replies {
			if isError(raw) {
				done(false, raw)
				return worst(replies)
			}
		}
		done(true, replies[0])
		return replies[0]
	})
	for i, n := range nodes {
		r.parts[i].raw = q.raw
		c.kept += len(q.raw)
		n.push(r.parts[i])
	}
	return r
}

// told is a change of what nodes are told that isn't answered yet.
type told struct {
	place       int
	raw, before []byte
}

// change notes what further nodes are to be told from now on; the reply may take it back.
func (s *setup) change(name string, raw []byte) told {
	for place, known := range replayed {
		if known == name {
			t := told{place, raw, s.told[place]}
			s.told[place] = raw
			return t
		}
	}
	panic("cluster: nothing is told under the name " + name)
}

func (s *setup) takeBack(changes []told) {
	for _, t := range changes {
		if bytes.Equal(s.told[t.place], t.raw) {
			s.told[t.place] = t.before
		}
	}
}

// login is AUTH and HELLO.
func login(c *Conn, q *query) {
	changes, proto := c.loginChanges(q.args)
	c.tell(q, func(ok bool, _ []byte) {
		switch {
		case !ok:
			c.setup.takeBack(changes)
		case proto != 0:
			c.setup.proto = proto
		}
	})
}

// loginChanges takes AUTH, or HELLO [proto [AUTH user password] [SETNAME name]], apart.
func (c *Conn) loginChanges(args [][]byte) (changes []told, proto int) {
	if strings.EqualFold(string(args[0]), "auth") {
		return []told{c.setup.change("auth", resp.AppendCommand(nil, args...))}, 0
	}
	if len(args) > 1 {
		if n, ok := resp.ParseInt(args[1]); ok && (n == 2 || n == 3) {
			proto = int(n)
			changes = append(changes, c.setup.change("hello", resp.AppendCommand(nil, args[:2]...)))
		}
	}
	for i := 2; i < len(args); i++ {
		switch option := strings.ToLower(string(args[i])); {
		case option == "auth" && i+2 < len(args):
			changes = append(changes, c.setup.change("auth", resp.AppendCommand(nil, []byte("AUTH"), args[i+1], args[i+2])))
			i += 2
		case option == "setname" && i+1 < len(args):
			changes = append(changes, c.setup.change("setname", resp.AppendCommand(nil, []byte("CLIENT"), []byte("SETNAME"), args[i+1])))
			i++
		}
	}
	return changes, proto
}

// tellAll is for what CLIENT sets on a connection.
func tellAll(c *Conn, q *query) {
	tracks := strings.HasPrefix(q.cmd.Name, "client|tracking")
	if tracks && hasWord(q.args[2:], "redirect") {
		c.local(resp.AppendError(nil, "ERR CLIENT TRACKING with REDIRECT can't be had on a cluster as a whole: use HELLO 3, and the messages come on this connection"))
		return
	}
	name := q.cmd.Name[strings.LastIndexByte(q.cmd.Name, '|')+1:]
	if tracks {
		name = "tracking"
	}
	changes := []told{c.setup.change(name, resp.AppendCommand(nil, q.args...))}
	on := q.cmd.Effect == commands.TrackingOn
	c.setup.tracking = c.setup.tracking || on
	c.tell(q, func(ok bool, _ []byte) {
		switch {
		case !ok:
			c.setup.takeBack(changes)
		case tracks:
			c.setup.tracking = on
		}
	})
}

func hasWord(args [][]byte, word string) bool {
	for _, arg := range args {
		if strings.EqualFold(string(arg), word) {
			return true
		}
	}
	return false
}

// forNext is CLIENT CACHING, which is about the next request on the same connection, wherever that goes.
func forNext(c *Conn, q *query) {
	toHome(c, q)
	c.caching = append([]byte(nil), q.raw...) // home knows

}

// reset is RESET: all nodes' connections are as new ones, and so are further ones, without a login.
func reset(c *Conn, q *query) {
	if len(q.args) > 1 {
		toHome(c, q) // it is refused, and changes nothing
		return
	}
	c.forgetWatch()
	c.txn = nil
	c.setup = setup{proto: 2, reset: true}
	r := c.tell(q, func(bool, []byte) {})
	r.each = func(n *node, _ *part, h resp.Head) {
		if !h.IsError() {
			n.state = nodeState{}
		}
	}
	c.shards = nil
}

// setUpBy makes sure that a node which doesn't let the user in, as others have, is not asked as somebody else.
func (n *node) setUpBy(raw []byte) *part {
	return &n.c.ownRequest(raw, func(reply []byte) {
		if isError(reply) && !isFailure(reply) && bytes.Equal(raw, n.c.setup.told[0]) {
			n.end(&Refusal{Addr: n.addr, Reply: string(errorLine(reply))})
		}
	}).one
}

// Refusal is a node's error to a login that another node has accepted.
type Refusal struct{ Addr, Reply string }

func (e *Refusal) Error() string {
	return fmt.Sprintf("node %s refused the login that other nodes of the cluster have accepted: %s", e.Addr, e.Reply)
}

// Refusal is the reply to what the node would have been asked.
func (e *Refusal) Refusal() []byte { return resp.AppendError(nil, "UPSTREAM "+e.Error()) }
