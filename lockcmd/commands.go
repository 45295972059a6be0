package lockcmd

import (
	"bytes"
	_ "embed"
	"strings"

	"lockproxy/lockcmd/syntax"
)

// Spec is one lock command.
type Spec struct {
	Name    string // lower case
	MinArgs int    // with the name
	MaxArgs int    // 0 is without limit
	OneLock bool   // it is about the lock that its first argument names, and asks for scripts alone
	Heavy   bool   // it can take long to compute, even before it asks for anything
	// ReadsFirst says that a request which can wait asks for something else before.
	ReadsFirst bool
	// begin makes the first Step of a request. args are without the name.
	begin func(l *Locks, c Client, args [][]byte) *Step
}

// Specs lists the lock commands.
var Specs = []Spec{
	{Name: "lock", MinArgs: 3, MaxArgs: 12, OneLock: true, begin: (*Locks).beginLock},
	{Name: "lockall", MinArgs: 4, begin: (*Locks).beginLockAll},
	{Name: "unlockall", MinArgs: 4, begin: (*Locks).beginUnlockAll},
	{Name: "unlock", MinArgs: 2, MaxArgs: 3, OneLock: true, begin: (*Locks).beginUnlock},
	{Name: "relock", MinArgs: 4, MaxArgs: 4, OneLock: true, begin: (*Locks).beginRelock},
	{Name: "lockinfo", MinArgs: 2, MaxArgs: 3, OneLock: true, begin: (*Locks).beginInfo},
	{Name: "lockscan", MinArgs: 2, MaxArgs: 8, Heavy: true, begin: (*Locks).beginScan},
	{Name: "locktop", MinArgs: 1, MaxArgs: 6, Heavy: true, begin: (*Locks).beginTop},
	{Name: "locklog", MinArgs: 1, MaxArgs: 4, Heavy: true, begin: (*Locks).beginLog},
	{Name: "once", MinArgs: 3, MaxArgs: 12, OneLock: true, ReadsFirst: true,
		begin: (*Locks).beginOnce},
	{Name: "done", MinArgs: 3, MaxArgs: 6, OneLock: true, begin: (*Locks).beginDone},
	{Name: "fence", MinArgs: 4, begin: (*Locks).beginFence},
}

// CheckArity returns Redis's error for a wrong number of arguments; args begin with the name.
func (c *Spec) CheckArity(args [][]byte) error {
	if c.isHelp(args) {
		return nil
	}
	if len(args) < c.MinArgs || c.MaxArgs > 0 && len(args) > c.MaxArgs {
		return syntax.UsageError("ERR wrong number of arguments for '" + c.Name + "' command; see LOCK HELP")
	}
	return nil
}

func (c *Spec) isHelp(args [][]byte) bool {
	return c.Name == "lock" && len(args) == 2 && bytes.EqualFold(args[1], []byte("help"))
}

// help is LOCK HELP, in the form of Redis's own HELP subcommands.
func help() Reply {
	lines := Reply{Kind: ArrayReply}
	for text := range strings.Lines(helpText) {
		lines.Elems = append(lines.Elems, statusReply(strings.TrimSuffix(text, "\n")))
	}
	return lines
}

//go:embed help.txt
var helpText string

// Waits reports whether a LOCK, LOCKALL or ONCE with these arguments can wait for others. args
// begin with the name.
func (c *Spec) Waits(args [][]byte) bool {
	options := 3
	switch c.Name {
	case "lock", "once":
	case "lockall":
		_, rest, err := syntax.ParseKeys(args[2:])
		if err != nil {
			return false
		}
		options = len(args) - len(rest)
	default:
		return false
	}
	for _, arg := range args[min(options, len(args)):] {
		if len(arg) == 4 && strings.EqualFold(string(arg), "wait") {
			return true
		}
	}
	return false
}

// Begin returns the first Step of a request. It must be finished, and Steps of one client in the
// order in which they were begun. args begin with the name, and CheckArity must have accepted them.
func (l *Locks) Begin(c *Spec, client Client, args [][]byte) *Step {
	if c.isHelp(args) {
		return answered(help())
	}
	return c.begin(l, client, args[1:])
}
