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

// told is a change of what nodes are told that isn't answered yet.
type told struct {
	place       int
	cmd, before []string
}

// change notes what further nodes are to be told from now on; the reply may take it back.
func (s *setup) change(name string, args ...[]byte) told {
	cmd := make([]string, len(args))
	for i, arg := range args {
		cmd[i] = string(arg)
	}
	for place, known := range replayed {
		if known == name {
			t := told{place, cmd, s.told[place]}
			s.told[place] = cmd
			return t
		}
	}
	panic("cluster: nothing is told under the name " + name)
}

func (s *setup) takeBack(changes []told) {
	for _, t := range changes {
		if slices.Equal(s.told[t.place], t.cmd) {
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
		return []told{c.setup.change("auth", args...)}, 0
	}
	if len(args) > 1 {
		if n, ok := resp.ParseInt(args[1]); ok && (n == 2 || n == 3) {
			proto = int(n)
			changes = append(changes, c.setup.change("hello", args[:2]...))
		}
	}
	for i := 2; i < len(args); i++ {
		switch option := strings.ToLower(string(args[i])); {
		case option == "auth" && i+2 < len(args):
			changes = append(changes, c.setup.change("auth", []byte("AUTH"), args[i+1], args[i+2]))
			i += 2
		case option == "setname" && i+1 < len(args):
			changes = append(changes, c.setup.change("setname", []byte("CLIENT"), []byte("SETNAME"), args[i+1]))
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
	changes := []told{c.setup.change(name, q.args...)}
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
