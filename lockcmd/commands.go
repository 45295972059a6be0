package lockcmd

import (
	"bytes"
	"context"
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
	{Name: "lock", MinArgs: 3, MaxArgs: 10, begin: (*Locks).beginLock, run: (*Locks).runLock},
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
	for _, text := range helpText {
		lines.Elems = append(lines.Elems, statusReply(text))
	}
	return lines
}

var helpText = []string{
	"The lock commands of lockproxy. Times are in seconds, decimals allowed:",
	"LOCK <key> <timeout> [SHARED | LIMIT <n>] [WAIT <seconds>] [SESSION] [OWNER <name>]",
	"    Take a lock. Returns its token, or null if another holds it.",
	"    SHARED: share it with others who do. LIMIT: with fewer than n.",
	"    WAIT: wait for it so long, in order of arrival; 0 is without end.",
	"    SESSION: keep it as long as this connection is open, and no longer.",
	"    OWNER: the same owner gets the same token again, and more time.",
	"    DEADLOCK is the error if owners would wait for each other in a cycle.",
	"UNLOCK <key> [<token> | FORCE]",
	"    Release a lock: by its token, or what this connection took, or any client's.",
	"    Returns 1, or 0 if there was nothing to release.",
	"LOCKALL <timeout> <numkeys> <key> [<key> ...] [WAIT <seconds>] [SESSION] [OWNER <name>]",
	"    Take all of several locks, or none. Returns one token for all, or null.",
	"UNLOCKALL <token> <numkeys> <key> [<key> ...]",
	"    Release several locks of one token. Returns how many it released.",
	"RELOCK <key> <token> <timeout>",
	"    Let a lock run for timeout from now. Returns 1, or 0 if the token doesn't hold it.",
	"LOCKINFO <key> [HOLDERS | WAITERS]",
	"    Return who holds a lock, since when and how long; null if it is free.",
	"    HOLDERS: a list of the holders. WAITERS: the queue, in order.",
	"    An upstream whose maxmemory-policy evicts may drop locks: use noeviction.",
	"LOCKSCAN <cursor> [MATCH <pattern>] [COUNT <n>] [KIND lockproxy|timestamp|other|all]",
	"    Iterate over the locks that are held by LOCK, as SCAN does over keys.",
	"    KIND: or by other clients, as far as this proxy has seen them taking a lock.",
	"LOCKTOP [BY wait|hold|count] [COUNT <n>] [SHAPES]",
	"    Return which locks cost most during the last hour, and who held them meanwhile.",
	"    SHAPES: keys that differ only in numbers count as one.",
	"LOCKLOG [<key>] [COUNT <n>]",
	"    Return what happened to locks during the last hour, the newest first.",
	"FENCE <key> <token> <command> [<arg> ...]",
	"    Run a command only if the token holds the lock, atomically.",
	"LOCK HELP",
	"    Print this help.",
}

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
	var a Answer
	var err error
	if step.Call != nil {
		a, err = s.Eval(step.Call)
	}
	return step.Finish(ctx, a, err)
}
