package syntax

import (
	"bytes"
	"strings"
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
}

// Specs lists the lock commands.
var Specs = []Spec{
	{Name: "lock", MinArgs: 3, MaxArgs: 14, OneLock: true},
	{Name: "lockall", MinArgs: 4},
	{Name: "unlockall", MinArgs: 4},
	{Name: "unlock", MinArgs: 2, MaxArgs: 3, OneLock: true},
	{Name: "relock", MinArgs: 4, MaxArgs: 7, OneLock: true},
	{Name: "lockinfo", MinArgs: 2, MaxArgs: 6, OneLock: true},
	{Name: "lockscan", MinArgs: 2, MaxArgs: 8, Heavy: true},
	{Name: "locktop", MinArgs: 1, MaxArgs: 6, Heavy: true},
	{Name: "locklog", MinArgs: 1, MaxArgs: 4, Heavy: true},
	{Name: "once", MinArgs: 3, MaxArgs: 12, OneLock: true, ReadsFirst: true},
	{Name: "done", MinArgs: 3, MaxArgs: 6, OneLock: true},
	{Name: "fence", MinArgs: 4},
}

// CheckArity returns Redis's error for a wrong number of arguments; args begin with the name.
func (c *Spec) CheckArity(args [][]byte) error {
	if c.IsHelp(args) {
		return nil
	}
	if len(args) < c.MinArgs || c.MaxArgs > 0 && len(args) > c.MaxArgs {
		return wrongNumber(c.Name)
	}
	return nil
}

func wrongNumber(command string) UsageError {
	return UsageError("ERR wrong number of arguments for '" + command + "' command; see LOCK HELP")
}

// IsHelp reports whether a request is LOCK HELP.
func (c *Spec) IsHelp(args [][]byte) bool {
	return c.Name == "lock" && len(args) == 2 && bytes.EqualFold(args[1], []byte("help"))
}

// Waits reports whether a LOCK, LOCKALL, ONCE, RELOCK or LOCKINFO with these arguments can wait for
// others. args begin with the name. Too few of them wait for nothing.
func (c *Spec) Waits(args [][]byte) bool {
	if c.CheckArity(args) != nil {
		return false
	}
	options := 3
	switch c.Name {
	case "lock", "once", "lockinfo", "relock":
	case "lockall":
		_, rest, err := ParseKeys(args[2:])
		if err != nil {
			return false
		}
		options = len(args) - len(rest)
	default:
		return false
	}
	for _, arg := range args[min(options, len(args)):] { // LOCK HELP has fewer
		if len(arg) == 4 && strings.EqualFold(string(arg), "wait") {
			return true
		}
	}
	return false
}
