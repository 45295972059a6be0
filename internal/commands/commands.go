package commands

import (
	"strings"

	"lockproxy/internal/foreign"
)

// Command is a row of the table.
type Command struct {
	Name    string   // in lower case; a subcommand's is "client|kill"
	ID      int      // its place in Rows
	Of      *Command // what it is a subcommand of; nil if it is none
	Class   Class
	Effect  Effect
	Reads   bool // it changes nothing that replicas are told of
	Keys    Keys
	Foreign foreign.Role // what it can do to a lock of a client that doesn't use LOCK
	Nodes   Nodes        // of a cluster
	Join    Join         // of their replies, if they are several
	// EndsLock says that it can remove a lock at one of its keys, give it another value or another
	// expiry; without keys, any lock.
	EndsLock bool
	Sets     bool   // it sets something for the connection: in a cluster, for those to all nodes
	Stays    bool   // what it sets outlives RESET
	Refused  string // why a cluster as a whole can't run it; "" if it can
	subs     map[string]*Command
}

// Class says by which connections a command can go.
type Class uint8

const (
	// Other commands can leave anything on the connection, so that must be the client's home.
	Other Class = iota
	// Shared commands neither depend on the connection that they go by nor change it, nor wait.
	Shared
	// Slow commands don't either, but others must not wait behind them: scripts, and what Redis
	// does in a thread.
	Slow
	// Occupying commands don't either, but Redis can hold back for seconds all that comes behind
	// them by the same connection, unless they run within a transaction or a script.
	Occupying
	// MayBlock commands are Shared unless they say BLOCK: then they are Blocking.
	MayBlock
	// Blocking commands can wait for another client. They leave nothing on the connection.
	Blocking
	// Stateful commands depend on the connection, or change it as their Effect says.
	Stateful
	// Greeting commands set a property of the client. The proxy sets it on the client's later
	// connections, too.
	Greeting
	// Lock commands are lockproxy's own.
	Lock
)

// Nodes says to which nodes of a cluster a command goes.
type Nodes uint8

const (
	One       Nodes = iota // the one that serves its keys; any, if it has none
	Split                  // those that serve its keys, each with its own: by code of the cluster
	Masters                // all masters; it has failed if it has at one
	AnyMaster              // all masters; it has succeeded if it has at one
	All                    // all masters and replicas; it has failed if it has at one
)

// Several reports whether the command goes to more than one node, whatever its keys are.
func (n Nodes) Several() bool { return n >= Masters }

// Join says how the replies of several nodes become one.
type Join uint8

const (
	First    Join = iota // they are all the same, such as OK
	Sum                  // of integers
	Min                  //
	Max                  // of integers; otherwise First
	MinEach              // the smallest integer at each place of arrays
	SumEach              // the sum at each place; what isn't an integer is the first's
	Elements             // of arrays, one behind the other
	Distinct             // likewise, each once
)

// Rows are all rows, by ID. They are only read.
var Rows = expand()

// Unknown is the row of commands that are not in the table.
var Unknown = &Rows[0]

// byName are the rows but those of subcommands.
var byName = index()

// expand gives each name of the table its own row.
func expand() []Command {
	all := []Command{{Effect: StickyState}}
	for _, row := range table {
		for name := range strings.FieldsSeq(row.Name) {
			row.Name, row.ID = name, len(all)
			all = append(all, row)
		}
	}
	return all
}

// index joins subcommands to their commands, which stand before them in the table.
func index() map[string]*Command {
	top := map[string]*Command{}
	for i := range Rows[1:] {
		c := &Rows[i+1]
		in, rest := &top, c.Name
		for name, sub, is := strings.Cut(rest, "|"); is; name, sub, is = strings.Cut(sub, "|") {
			c.Of, rest = (*in)[name], sub
			in = &c.Of.subs
		}
		if *in == nil {
			*in = map[string]*Command{}
		}
		(*in)[rest] = c
	}
	return top
}

// MaxName is longer than any name in the table, and any subcommand's.
const MaxName = 24

// Find is the row of a command by its name as a client writes it, or Unknown. It does not allocate.
func Find(name []byte) *Command {
	if c := find(byName, name); c != nil {
		return c
	}
	return Unknown
}

// For is the row for a request of this command: that of its subcommand, if it has one, or c itself.
// It does not allocate.
func (c *Command) For(args [][]byte) *Command {
	for ; c.subs != nil && len(args) > 1; args = args[1:] {
		sub := find(c.subs, args[1])
		if sub == nil {
			break
		}
		c = sub
	}
	return c
}

// HasSubs reports whether subcommands of the command have their own rows.
func (c *Command) HasSubs() bool { return c.subs != nil }

func find(m map[string]*Command, name []byte) *Command {
	var lower [MaxName]byte
	if len(name) > MaxName {
		return nil
	}
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return m[string(lower[:len(name)])]
}
