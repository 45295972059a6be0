package cluster

import (
	"strings"

	"lockproxy/internal/resp"
)

// command is how one command goes to the cluster.
type command struct {
	keys keyRule
	run  func(c *Conn, q *query)
	// split is how a request whose keys are in several slots is taken apart; nil is not at all.
	split func(c *Conn, q *query, at []int)
	// join makes one reply out of those of several nodes.
	join joiner
	// everyNode says that it goes to the replicas too, of those commands that go to more than one node.
	everyNode bool
	// any says that it has succeeded if it has at one node.
	any bool
	// replay says under what name further nodes are told the same; "" is not at all.
	replay string
	// why is what a command that isn't sent anywhere is answered.
	why string
	// subs are its subcommands that go otherwise.
	subs map[string]*command
}

// commands are all that go otherwise than unknown ones, by name in lower case. What isn't here is asked where home is: a node whose
// keys they aren't says who else to ask.
var commands map[string]*command

// names are those of the tables, so that looking one up doesn't allocate.
var names = map[string]string{}

func init() { // not in the declarations, since some of the ways look commands up
	commands = makeCommands()
	for name, cmd := range commands {
		names[name] = name
		for sub := range cmd.subs {
			names[sub] = sub
		}
	}
}

func makeCommands() map[string]*command {
	t := map[string]*command{}
	entry := func(name string) *command {
		name, sub, isSub := strings.Cut(name, "|")
		cmd := t[name]
		if cmd == nil {
			cmd = &command{run: toHome}
			t[name] = cmd
		}
		if !isSub {
			return cmd
		}
		if cmd.subs == nil {
			cmd.subs = map[string]*command{}
		}
		if cmd.subs[sub] == nil {
			cmd.subs[sub] = &command{run: toHome}
		}
		return cmd.subs[sub]
	}
	for name, rule := range keyTable {
		cmd := entry(name)
		cmd.keys, cmd.run = rule, byKeys
	}
	set := func(names string, change func(cmd *command)) {
		for _, name := range strings.Fields(names) {
			change(entry(name))
		}
	}
	set("mget", func(cmd *command) { cmd.split = splitMget })
	set("mset", func(cmd *command) { cmd.split = splitMset })
	set("del unlink exists touch", func(cmd *command) { cmd.split = splitSum })

	everywhere(set)
	set("scan", func(cmd *command) { cmd.run = scan })
	set("publish", func(cmd *command) { cmd.run = publish })
	set("randomkey", func(cmd *command) { cmd.run = randomKey })
	set("cluster|countkeysinslot cluster|getkeysinslot", func(cmd *command) { cmd.run = bySlot })
	set("readonly readwrite asking", func(cmd *command) { cmd.run = answerOK })
	set("quit", func(cmd *command) { cmd.run = quit })
	state(set)
	for name, why := range impossible {
		set(name, func(cmd *command) { cmd.run, cmd.why = refuse, why })
	}
	return t
}

// everywhere are the commands that go to all masters, or to all nodes, and how one reply is made of theirs. The user of one Redis expects
// them to be about all keys, or to change the server whatever part of it serves a key.
func everywhere(set func(names string, change func(cmd *command))) {
	to := func(join joiner, names string) {
		set(names, func(cmd *command) { cmd.run, cmd.join = toMasters, join })
	}
	to(joinSum, `dbsize`)
	to(joinAll, `keys slowlog|get`)
	to(joinFirst, `flushall flushdb function|load function|delete function|flush function|restore script|flush
		bgsave save bgrewriteaof memory|purge client|unpause client|pause slowlog|reset config|resetstat`)
	to(joinSum, `pubsub|numpat slowlog|len latency|reset`)
	to(joinMin, `wait lastsave`)
	to(joinMinEach, `waitaof script|exists`)
	to(joinDistinct, `pubsub|channels pubsub|shardchannels`)
	to(joinSumEach, `pubsub|numsub pubsub|shardnumsub`)
	to(joinText, `client|list`)
	to(joinFirst, `script|kill function|kill client|kill client|unblock`)
	set("script|kill function|kill", func(cmd *command) { cmd.any = true })
	set("client|kill client|unblock", func(cmd *command) { cmd.join, cmd.any = joinLargest, true })
	// A replica may become a master, and isn't told these by its master.
	set("script|load acl|setuser acl|deluser acl|load acl|save config|set config|rewrite", func(cmd *command) {
		cmd.run, cmd.join, cmd.everyNode = toMasters, joinFirst, true
	})
}

// impossible are the commands that one Redis has and a whole cluster can't have.
var impossible = map[string]string{
	"sync":             "it is about the data of one node",
	"psync":            "it is about the data of one node",
	"shutdown":         "it would end one node",
	"debug|restart":    "it would end one node",
	"debug|segfault":   "it would end one node",
	"cluster|addslots": "it is about one node", "cluster|addslotsrange": "it is about one node", "cluster|bumpepoch": "it is about one node",
	"cluster|delslots": "it is about one node", "cluster|delslotsrange": "it is about one node", "cluster|failover": "it is about one node",
	"cluster|flushslots": "it is about one node", "cluster|forget": "it is about one node", "cluster|meet": "it is about one node",
	"cluster|replicate": "it is about one node", "cluster|reset": "it is about one node", "cluster|set-config-epoch": "it is about one node",
	"cluster|setslot": "it is about one node", "cluster|saveconfig": "it is about one node",
}

func refuse(c *Conn, q *query) {
	name := strings.ToUpper(string(q.args[0]))
	if len(q.args) > 1 && lookup(q.args[:1]) != q.cmd {
		name += " " + strings.ToUpper(string(q.args[1]))
	}
	c.local(resp.AppendError(nil, "ERR "+name+" can't be sent to a cluster as a whole: "+q.cmd.why+". Send it to that node directly"))
}

// maxName is longer than any name in the table.
const maxName = 24

// lookup finds the command of a request.
func lookup(args [][]byte) *command {
	cmd := commands[lower(args[0])]
	if cmd == nil {
		return unknown
	}
	if cmd.subs != nil && len(args) > 1 {
		if sub := cmd.subs[lower(args[1])]; sub != nil {
			return sub
		}
	}
	return cmd
}

var unknown = &command{run: toHome}

func lower(name []byte) string {
	if len(name) > maxName {
		return ""
	}
	var b [maxName]byte
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		b[i] = c
	}
	return names[string(b[:len(name)])]
}

// headSlot is the slot of a request of which only the first arguments have come, of argc; ok is false if they don't tell.
func (cmd *command) headSlot(args [][]byte, argc int) (slot int, ok bool) {
	k := &cmd.keys
	switch {
	case cmd == unknown:
		return -1, true
	case k.find != nil || cmd.join != nil || cmd.subs != nil:
		return 0, false
	case k.first == 0:
		return -1, true
	case k.last < 0 && (k.first-1)%k.step+k.first != argc-1 && argc-1 > k.first+k.step-1:
		return 0, false
	case len(args) <= max(k.last, k.first):
		return 0, false
	}
	slot = Slot(args[k.first])
	for i := k.first; i <= k.last; i += k.step {
		if Slot(args[i]) != slot {
			return 0, false
		}
	}
	return slot, true
}

// KeyPositions is where the keys of a request are, as far as the table of commands knows. It is pure.
func KeyPositions(request []string) []int {
	args := make([][]byte, len(request))
	for i, arg := range request {
		args[i] = []byte(arg)
	}
	return lookup(args).keys.positions(args, nil)
}
