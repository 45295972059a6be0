package lockcmd

import (
	"bytes"
	"context"
	_ "embed"
	"strings"
)

// Spec is one lock command.
type Spec struct {
	Name    string // lower case
	MinArgs int    // with the name
	MaxArgs int    // 0 is without limit
	// begin makes the Step of a request that takes one script at most; nil if no request does. args
	// are without the name.
	begin func(l *Locks, s Session, args [][]byte) (step Step, ok bool)
	// run runs other requests.
	run func(l *Locks, ctx context.Context, s Session, args [][]byte) Reply
}

// Specs lists the lock commands.
var Specs = []Spec{
	{Name: "lock", MinArgs: 3, MaxArgs: 12, begin: (*Locks).beginLock, run: (*Locks).runLock},
	{Name: "lockall", MinArgs: 4, run: (*Locks).runLockAll},
	{Name: "unlockall", MinArgs: 4, run: (*Locks).runUnlockAll},
	{Name: "unlock", MinArgs: 2, MaxArgs: 3, begin: (*Locks).beginUnlock},
	{Name: "relock", MinArgs: 4, MaxArgs: 4, begin: (*Locks).beginRelock},
	{Name: "lockinfo", MinArgs: 2, MaxArgs: 3, begin: (*Locks).beginInfo},
	{Name: "lockscan", MinArgs: 2, MaxArgs: 8, run: (*Locks).runScan},
	{Name: "locktop", MinArgs: 1, MaxArgs: 6, run: (*Locks).runTop},
	{Name: "locklog", MinArgs: 1, MaxArgs: 4, run: (*Locks).runLog},
	{Name: "fence", MinArgs: 4, run: (*Locks).runFence},
}

// CheckArity returns Redis's error for a wrong number of arguments; args begin with the name.
func (c *Spec) CheckArity(args [][]byte) error {
	if c.isHelp(args) {
		return nil
	}
	if len(args) < c.MinArgs || c.MaxArgs > 0 && len(args) > c.MaxArgs {
		return UsageError("ERR wrong number of arguments for '" + c.Name + "' command")
	}
	return nil
}

// AsksOnce reports whether a request takes one script at most, and never waits. args begin with the
// name.
func (c *Spec) AsksOnce(args [][]byte) bool {
	return c.begin != nil && c.CheckArity(args) == nil && !c.Waits(args)
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

// Waits reports whether a LOCK or LOCKALL with these arguments can wait for others. args begin with
// the name.
func (c *Spec) Waits(args [][]byte) bool {
	options := 3
	switch c.Name {
	case "lock":
	case "lockall":
		_, rest, err := parseKeys(args[2:])
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

// Begin begins a request that takes one script at most; ok is false for any other. The Step must be
// finished. args begin with the name, and CheckArity must have accepted them.
func (l *Locks) Begin(c *Spec, s Session, args [][]byte) (step Step, ok bool) {
	if c.isHelp(args) {
		return answered(help()), true
	}
	if c.begin == nil {
		return Step{}, false
	}
	return c.begin(l, s, args[1:])
}

// Run runs a request. args are as for Begin.
func (l *Locks) Run(ctx context.Context, c *Spec, s Session, args [][]byte) Reply {
	step, ok := l.Begin(c, s, args)
	if !ok {
		return c.run(l, ctx, s, args[1:])
	}
	for next := &step; ; {
		var a Answer
		var err error
		if next.Call != nil {
			a, err = s.Eval(next.Call)
		}
		var reply Reply
		if reply, next = next.Finish(ctx, a, err); next == nil {
			return reply
		}
	}
}
