package lockcmd

import (
	"slices"
	"strings"

	"lockproxy/internal/resp"
)

// commandDoc is what COMMAND says about a lock command, in the terms of
// https://redis.io/docs/latest/commands/command-docs.
type commandDoc struct {
	summary    string
	complexity string
	flags      []string
	categories []string // of ACL, for COMMAND LIST; the script decides what a user may do
	tips       []string
	keys       []keySpec
	args       []argument
}

// keySpec says where keys are: at the first argument, after their number, or unknown.
type keySpec struct {
	notes    string
	flags    []string
	numbered bool // their number is the second argument
	unknown  bool
}

type argument struct {
	name, kind         string // kind as in COMMAND DOCS; a "key" is that of the first keySpec
	token              string // the word before it, or instead of it
	optional, multiple bool
	oneOf              []argument
}

const (
	docGroup = "lock"
	docSince = "lockproxy 1.0.0" // no version of Redis
)

var (
	keyArg     = argument{name: "key", kind: "key"}
	tokenArg   = argument{name: "token", kind: "integer"}
	timeoutArg = argument{name: "timeout", kind: "double"}

	changing = []string{"keyspace", "write", "slow", "scripting"}
)

// commandDocs has an entry for each of Specs.
var commandDocs = map[string]commandDoc{
	"lock": {
		summary:    "Take a lock; returns its token, or null if another holds it",
		complexity: "O(1)",
		flags:      []string{"write", "denyoom", "noscript", "blocking"},
		categories: append(slices.Clone(changing), "blocking"),
		tips:       []string{"nondeterministic_output"},
		keys:       []keySpec{{flags: []string{"RW", "access", "update"}}},
		args: []argument{
			keyArg, timeoutArg,
			{name: "mode", kind: "oneof", optional: true, oneOf: []argument{
				{name: "shared", kind: "pure-token", token: "SHARED"},
				{name: "limit", kind: "integer", token: "LIMIT"},
			}},
			{name: "seconds", kind: "double", token: "WAIT", optional: true},
			{name: "session", kind: "pure-token", token: "SESSION", optional: true},
			{name: "name", kind: "string", token: "OWNER", optional: true},
		},
	},
	"lockall": {
		summary:    "Take all of several locks, or none; returns one token for all, or null",
		complexity: "O(N) with N being the number of keys",
		flags:      []string{"write", "denyoom", "noscript", "blocking", "movablekeys"},
		categories: append(slices.Clone(changing), "blocking"),
		tips:       []string{"nondeterministic_output"},
		keys:       []keySpec{{flags: []string{"RW", "access", "update"}, numbered: true}},
		args: []argument{
			timeoutArg, {name: "numkeys", kind: "integer"},
			{name: "key", kind: "key", multiple: true},
			{name: "seconds", kind: "double", token: "WAIT", optional: true},
			{name: "session", kind: "pure-token", token: "SESSION", optional: true},
			{name: "name", kind: "string", token: "OWNER", optional: true},
		},
	},
	"unlockall": {
		summary:    "Release several locks of one token; returns how many it released",
		complexity: "O(N) with N being the number of keys",
		flags:      []string{"write", "noscript", "movablekeys"},
		categories: changing,
		keys:       []keySpec{{flags: []string{"RW", "access", "delete"}, numbered: true}},
		args: []argument{
			tokenArg, {name: "numkeys", kind: "integer"},
			{name: "key", kind: "key", multiple: true},
		},
	},
	"unlock": {
		summary: "Release a lock: by its token, or the one that this connection took; " +
			"returns whether it did",
		complexity: "O(1)",
		flags:      []string{"write", "noscript"},
		categories: changing,
		keys:       []keySpec{{flags: []string{"RW", "access", "delete"}}},
		args: []argument{
			keyArg,
			{name: "proof", kind: "oneof", optional: true, oneOf: []argument{
				tokenArg, {name: "force", kind: "pure-token", token: "FORCE"},
			}},
		},
	},
	"relock": {
		summary: "Let a lock run for a time from now, if the token still holds it; " +
			"returns whether it does",
		complexity: "O(1)",
		flags:      []string{"write", "denyoom", "noscript"},
		categories: changing,
		keys:       []keySpec{{flags: []string{"RW", "access", "update"}}},
		args:       []argument{keyArg, tokenArg, timeoutArg},
	},
	"lockinfo": {
		summary: "Get who holds a lock, since when and how long; null if it is free, " +
			"or if an upstream whose maxmemory-policy evicts has dropped it",
		complexity: "O(1)",
		flags:      []string{"readonly", "noscript"},
		categories: []string{"keyspace", "read", "slow", "scripting"},
		tips:       []string{"nondeterministic_output"},
		keys:       []keySpec{{flags: []string{"RO", "access"}}},
		args: []argument{
			keyArg,
			{name: "list", kind: "oneof", optional: true, oneOf: []argument{
				{name: "holders", kind: "pure-token", token: "HOLDERS"},
				{name: "waiters", kind: "pure-token", token: "WAITERS"},
			}},
		},
	},
	"lockscan": {
		summary: "Incrementally iterate over the locks that are held by LOCK, " +
			"or by other clients that this proxy has seen",
		complexity: "O(1) for every call. O(N) for a complete iteration. " +
			"N is the number of keys in the database",
		flags:      []string{"readonly", "noscript"},
		categories: []string{"keyspace", "read", "slow"},
		tips:       []string{"nondeterministic_output", "request_policy:special"},
		args: []argument{
			{name: "cursor", kind: "integer"},
			{name: "pattern", kind: "pattern", token: "MATCH", optional: true},
			{name: "count", kind: "integer", token: "COUNT", optional: true},
			{name: "kind", kind: "oneof", token: "KIND", optional: true, oneOf: []argument{
				{name: kindLockproxy, kind: "pure-token", token: "LOCKPROXY"},
				{name: kindTimestamp, kind: "pure-token", token: "TIMESTAMP"},
				{name: kindOther, kind: "pure-token", token: "OTHER"},
				{name: kindAll, kind: "pure-token", token: "ALL"},
			}},
		},
	},
	"locktop": {
		summary: "Get which locks cost most during the last hour, as this proxy saw it, " +
			"and which holders others waited for",
		complexity: "O(N log(N)) with N being the number of locks that were used",
		flags:      []string{"readonly", "noscript"},
		categories: []string{"keyspace", "read", "slow"},
		tips:       []string{"nondeterministic_output"},
		args: []argument{
			{name: "by", kind: "oneof", token: "BY", optional: true, oneOf: []argument{
				{name: "wait", kind: "pure-token", token: "WAIT"},
				{name: "hold", kind: "pure-token", token: "HOLD"},
				{name: "count", kind: "pure-token", token: "COUNT"},
			}},
			{name: "count", kind: "integer", token: "COUNT", optional: true},
			{name: "shapes", kind: "pure-token", token: "SHAPES", optional: true},
		},
	},
	"locklog": {
		summary: "Get what happened to locks during the last hour, as this proxy saw it, " +
			"the newest first",
		complexity: "O(N log(N)) with N being the number of events that are remembered",
		flags:      []string{"readonly", "noscript"},
		categories: []string{"keyspace", "read", "slow"},
		tips:       []string{"nondeterministic_output"},
		args: []argument{
			{name: "key", kind: "string", optional: true},
			{name: "count", kind: "integer", token: "COUNT", optional: true},
		},
	},
	"fence": {
		summary:    "Run a command, atomically, only if the token still holds the lock",
		complexity: "Depends on the command that is run",
		flags:      []string{"write", "denyoom", "noscript", "movablekeys"},
		categories: changing,
		keys: []keySpec{
			{flags: []string{"RO", "access"}},
			{
				notes:   "The keys of the command that is run, as that command has them",
				flags:   []string{"RW", "access", "update"},
				unknown: true,
			},
		},
		args: []argument{
			keyArg, tokenArg, {name: "command", kind: "string"},
			{name: "arg", kind: "string", optional: true, multiple: true},
		},
	},
}

// Arity is the number of arguments with the name; negative if there may be more.
func (c *Spec) Arity() int {
	if c.MinArgs == c.MaxArgs {
		return c.MinArgs
	}
	return -c.MinArgs
}

// InCategory reports whether the command is in an ACL category.
func (c *Spec) InCategory(name string) bool {
	return slices.Contains(commandDocs[c.Name].categories, strings.ToLower(name))
}

// KeysOf returns the keys of a request, which begins with the name; nil if their number is wrong.
// It leaves out the keys of a command that FENCE runs.
func (c *Spec) KeysOf(args [][]byte) [][]byte {
	if !c.numbersKeys() {
		return args[1:2]
	}
	keys, _, _ := parseKeys(args[2:])
	return keys
}

func (c *Spec) numbersKeys() bool {
	keys := commandDocs[c.Name].keys
	return len(keys) > 0 && keys[0].numbered
}

// KeyFlags are the flags of its keys in COMMAND GETKEYSANDFLAGS, nil if it has none.
func (c *Spec) KeyFlags() []string {
	if keys := commandDocs[c.Name].keys; len(keys) > 0 {
		return keys[0].flags
	}
	return nil
}

// RunsAnother reports whether the command's third argument is another command, with its own keys.
func (c *Spec) RunsAnother() bool { return c.Name == "fence" }

// InfoFields is how many fields COMMAND INFO has since Redis 7.0. 6.0 had 7, older ones 6.
const InfoFields = 10

// AppendInfo appends the first fields of the command's entry in COMMAND INFO.
func (c *Spec) AppendInfo(e *resp.Encoder, fields int) {
	d := commandDocs[c.Name]
	e.Array(fields)
	first := min(1, len(d.keys))
	if c.numbersKeys() {
		first = 0
	}
	for _, field := range []func(){
		func() { e.Bulk(c.Name) },
		func() { e.Int(c.Arity()) },
		func() { appendSet(e, "", d.flags) },
		func() { e.Int(first) },
		func() { e.Int(first) },
		func() { e.Int(first) }, // the step
		func() { appendSet(e, "@", d.categories) },
		func() { appendTips(e, d.tips) },
		func() { appendKeySpecs(e, d.keys) },
		func() { e.Set(0) }, // subcommands
	}[:fields] {
		field()
	}
}

// appendSet appends words as Redis does flags: a set of statuses.
func appendSet(e *resp.Encoder, prefix string, words []string) {
	e.Set(len(words))
	for _, word := range words {
		e.Status(prefix + word)
	}
}

func appendTips(e *resp.Encoder, tips []string) {
	e.Set(len(tips))
	for _, tip := range tips {
		e.Bulk(tip)
	}
}

func appendKeySpecs(e *resp.Encoder, keys []keySpec) {
	e.Set(len(keys))
	for _, k := range keys {
		if k.notes == "" {
			e.Map(3)
		} else {
			e.Map(4)
			e.Bulk("notes")
			e.Bulk(k.notes)
		}
		e.Bulk("flags")
		appendSet(e, "", k.flags)
		if k.unknown {
			appendSearch(e, "begin_search", "unknown")
			appendSearch(e, "find_keys", "unknown")
			continue
		}
		if k.numbered {
			appendSearch(e, "begin_search", "index", "index", 2)
			appendSearch(e, "find_keys", "keynum", "keynumidx", 0, "firstkey", 1, "keystep", 1)
			continue
		}
		appendSearch(e, "begin_search", "index", "index", 1)
		appendSearch(e, "find_keys", "range", "lastkey", 0, "keystep", 1, "limit", 0)
	}
}

// appendSearch appends one half of a key specification; spec is names and numbers in turn.
func appendSearch(e *resp.Encoder, half, kind string, spec ...any) {
	e.Bulk(half)
	e.Map(2)
	e.Bulk("type")
	e.Bulk(kind)
	e.Bulk("spec")
	e.Map(len(spec) / 2)
	for i := 0; i < len(spec); i += 2 {
		e.Bulk(spec[i].(string))
		e.Int(spec[i+1].(int))
	}
}

// AppendDoc appends the command's value in the map of COMMAND DOCS.
func (c *Spec) AppendDoc(e *resp.Encoder) {
	d := commandDocs[c.Name]
	e.Map(5)
	for _, field := range [][2]string{
		{"summary", d.summary}, {"since", docSince}, {"group", docGroup},
		{"complexity", d.complexity},
	} {
		e.Bulk(field[0])
		e.Bulk(field[1])
	}
	e.Bulk("arguments")
	appendArguments(e, d.args)
}

func appendArguments(e *resp.Encoder, args []argument) {
	e.Array(len(args))
	for _, a := range args {
		a.append(e)
	}
}

func (a argument) append(e *resp.Encoder) {
	var flags []string
	if a.optional {
		flags = append(flags, "optional")
	}
	if a.multiple {
		flags = append(flags, "multiple")
	}
	shown := a.kind != "oneof" && a.kind != "pure-token"
	fields := 2
	for _, present := range []bool{
		shown, a.kind == "key", a.token != "", len(flags) > 0, len(a.oneOf) > 0,
	} {
		if present {
			fields++
		}
	}
	e.Map(fields)
	e.Bulk("name")
	e.Bulk(a.name)
	e.Bulk("type")
	e.Bulk(a.kind)
	if shown { // since Redis 7.2; older ones don't mind
		e.Bulk("display_text")
		e.Bulk(a.name)
	}
	if a.kind == "key" {
		e.Bulk("key_spec_index")
		e.Int(0)
	}
	if a.token != "" {
		e.Bulk("token")
		e.Bulk(a.token)
	}
	if len(flags) > 0 {
		e.Bulk("flags")
		appendSet(e, "", flags)
	}
	if len(a.oneOf) > 0 {
		e.Bulk("arguments")
		appendArguments(e, a.oneOf)
	}
}
