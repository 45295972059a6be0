package cluster

// What a user does to a connection, and every node's must be told: those that are open at once, further
// ones by who dials them.

import (
	"slices"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// setup is what further nodes are told before anything else.
type setup struct {
	proto    int  // of the replies
	reset    bool // what Dial's connections begin with isn't wanted any more
	tracking bool // CLIENT TRACKING is on
	told     [len(replayed)][]string
}

// replayed are the names under which commands are kept, in the order in which a node is told them.
var replayed = [...]string{"auth", "hello", "setname", "lib-name", "lib-ver", "no-evict", "no-touch", "tracking"}

func (s *setup) replay() (cmds [][]string) {
	if s.reset {
		cmds = append(cmds, []string{"RESET"})
	}
	for _, cmd := range s.told {
		if cmd != nil {
			cmds = append(cmds, cmd)
		}
	}
	return cmds
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

// change notes what further nodes are to be told from now on under a name of replayed; the reply may take
// it back.
func (s *setup) change(name string, args ...[]byte) {
	cmd := make([]string, len(args))
	for i, arg := range args {
		cmd[i] = string(arg)
	}
	s.told[slices.Index(replayed[:], name)] = cmd
}

// takeBack undoes a change from before to after, but for what has been changed again.
func (s *setup) takeBack(before, after setup) {
	for i, cmd := range after.told {
		if !slices.Equal(cmd, before.told[i]) && slices.Equal(cmd, s.told[i]) {
			s.told[i] = before.told[i]
		}
	}
}

// tellChanges sends a request that has changed what nodes are told. done is called if none refuses it.
func (c *Conn) tellChanges(q *query, before setup, done func()) {
	after := c.setup
	c.tell(q, func(ok bool, _ []byte) {
		if !ok {
			c.setup.takeBack(before, after)
			return
		}
		done()
	})
}

// login is AUTH, or HELLO [proto [AUTH user password] [SETNAME name]].
func login(c *Conn, q *query) {
	before, args, proto := c.setup, q.args, 0
	if q.cmd.Name == "auth" {
		c.setup.change("auth", args...)
		args = nil
	}
	if len(args) > 1 {
		if n, ok := resp.ParseInt(args[1]); ok && (n == 2 || n == 3) {
			proto = int(n)
			c.setup.change("hello", args[:2]...)
		}
	}
	for i := 2; i < len(args); i++ {
		switch option := strings.ToLower(string(args[i])); {
		case option == "auth" && i+2 < len(args):
			c.setup.change("auth", []byte("AUTH"), args[i+1], args[i+2])
			i += 2
		case option == "setname" && i+1 < len(args):
			c.setup.change("setname", []byte("CLIENT"), []byte("SETNAME"), args[i+1])
			i++
		}
	}
	c.tellChanges(q, before, func() {
		if proto != 0 {
			c.setup.proto = proto
		}
	})
}

// tellAll is for what CLIENT sets on a connection.
func tellAll(c *Conn, q *query) {
	before := c.setup
	name := q.cmd.Name[strings.LastIndexByte(q.cmd.Name, '|')+1:]
	tracks := strings.HasPrefix(q.cmd.Name, "client|tracking")
	on := q.cmd.Effect == commands.TrackingOn
	if tracks {
		name = "tracking"
	}
	if tracks && hasWord(q.args[2:], "redirect") {
		c.local(resp.AppendError(nil, "ERR CLIENT TRACKING with REDIRECT can't be had on a cluster as a whole: "+
			"use HELLO 3, and the messages come on this connection"))
		return
	}
	c.setup.change(name, q.args...)
	c.setup.tracking = c.setup.tracking || on
	c.tellChanges(q, before, func() {
		if tracks {
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
