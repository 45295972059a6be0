package commands

import (
	"bufio"
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/foreign"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/wire"
)

// asker asks a redis-server and decodes its replies.
func asker(t *testing.T) func(args ...string) wire.Value {
	nc, err := net.Dial("tcp", testredis.Start(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	in := bufio.NewReader(nc)
	return func(args ...string) wire.Value {
		t.Helper()
		nc.Write(wire.Append(nil, args...))
		v, err := wire.ReadValue(in, wire.RESP2)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// unlisted are the commands of Redis that are not in the table, each with the reason.
var unlisted = map[string]string{
	"pfdebug":    "it is for Redis's own tests",
	"pfselftest": "likewise",
}

// newer are the commands that not every Redis and Valkey knows, with those of their subcommands.
var newer = strings.Fields(`
	client|capa client|import-source client|no-touch client|setinfo
	cluster|cancelslotmigrations cluster|flushslot cluster|getslotmigrations cluster|migrateslots
	cluster|migration cluster|slot-stats cluster|syncslots clusterscan commandlog commandlog|get
	commandlog|len commandlog|reset delex delifeq digest hexpire hexpireat hexpiretime hgetdel hgetex
	hotkeys hotkeys|get hotkeys|reset hotkeys|start hotkeys|stop hpersist
	hpexpire hpexpireat hpexpiretime hpttl hsetex httl msetex trimslots vadd vcard vdim vemb
	vgetattr vinfo vismember vlinks vrandmember vrange vrem vsetattr vsim waitaof xackdel xcfgset
	xdelex xidmprecord sflush`)

// afterTable reports whether the server is later than Redis 8.6 and Valkey 9.1, the last whose
// commands are all in the table.
func afterTable() bool {
	if testredis.IsValkey() {
		return testredis.Since(9, 2)
	}
	return testredis.Since(8, 7)
}

// hidden are the commands that no Redis lists.
var hidden = []string{"post", "host:", "fence", "lockproxy.wait", "lockproxy.unblock",
	"client|maint_notifications", "debug|object", "debug|restart",
	"debug|segfault"}

// sharedInSpite are the commands that can be shared although Redis's flags suggest otherwise, each
// with the reason.
var sharedInSpite = map[string]string{
	"echo":                 "it answers with its argument",
	"ping":                 "a client that has subscribed does not share",
	"command":              "it tells of the server",
	"client|help":          "it tells of the server",
	"publish":              "it gives to others; the publisher's connection is as before",
	"spublish":             "likewise",
	"pubsub|channels":      "it tells of the server",
	"pubsub|numpat":        "likewise",
	"pubsub|numsub":        "likewise",
	"pubsub|shardchannels": "likewise",
	"pubsub|shardnumsub":   "likewise",
	"save":                 "it may take long, and leaves nothing on the connection",
}

// onlyNew are the commands that overwrite no key, although Redis says that they do, with the reason.
var onlyNew = map[string]string{
	"setnx":  "it sets only what there is not",
	"msetnx": "likewise",
}

// entry is what a server says of a command or a subcommand.
type entry struct {
	name              string
	flags, categories []string
	first, last, step int
	onKeys            []string // what it does to keys: OW overwrites, RM removes
	subs              []entry
}

func entryOf(v wire.Value) entry {
	e := entry{
		name:       v.Elems[0].Text,
		flags:      texts(v.Elems[2]),
		first:      int(v.Elems[3].Int),
		last:       int(v.Elems[4].Int),
		step:       int(v.Elems[5].Int),
		categories: texts(v.Elems[6]),
	}
	if len(v.Elems) > 9 {
		for _, spec := range v.Elems[8].Elems {
			e.onKeys = append(e.onKeys, texts(spec.Elems[1])...)
		}
		for _, sub := range v.Elems[9].Elems {
			e.subs = append(e.subs, entryOf(sub))
		}
	}
	return e
}

func texts(v wire.Value) (list []string) {
	for _, e := range v.Elems {
		list = append(list, e.Text)
	}
	return list
}

func (e entry) is(flag string) bool { return slices.Contains(e.flags, flag) }

func (e entry) in(category string) bool { return slices.Contains(e.categories, category) }

// row is the row that requests of the entry's command get.
func (e entry) row() *Command {
	name, sub, _ := strings.Cut(e.name, "|")
	return Find([]byte(name)).For([][]byte{[]byte(name), []byte(sub)})
}

// The table agrees with what the installed server says of its commands.
func TestTableAgainstRedis(t *testing.T) {
	known := map[string]bool{}
	var check func(e entry)
	check = func(e entry) {
		known[e.name] = true
		name, _, _ := strings.Cut(e.name, "|")
		switch row := e.row(); {
		case unlisted[name] != "" && row != Unknown:
			t.Errorf("%s is in the table and in the list of those that are not", e.name)
		case unlisted[name] != "":
		case row == Unknown && afterTable():
			t.Logf("%s is newer than the table, and gets the zero row", e.name)
		case row == Unknown:
			t.Errorf("%s is not in the table", e.name)
		default:
			if row.Reads && (e.is("write") || e.is("may_replicate")) {
				t.Errorf("%s is said to read, and is flagged %q", e.name, e.flags)
			}
			checkKeys(t, e, row)
			checkClass(t, e, row)
			ends := slices.Contains(e.onKeys, "OW") || slices.Contains(e.onKeys, "RM")
			if ends && !row.EndsLock && onlyNew[e.name] == "" {
				t.Errorf("%s removes keys or overwrites them: it can end a lock", e.name)
			}
		}
		for _, sub := range e.subs {
			check(sub)
		}
	}
	all := asker(t)("COMMAND").Elems
	if len(all) < 200 {
		t.Fatalf("%d commands", len(all))
	}
	for _, v := range all {
		check(entryOf(v))
	}
	for i := range Rows {
		c := &Rows[i]
		switch {
		case c == Unknown, c.Class == Lock, strings.Count(c.Name, "|") > 1:
		case slices.Contains(hidden, c.Name), slices.Contains(newer, c.Name),
			strings.Contains(c.Name, "."): // a module's
		case !known[c.Name]:
			t.Errorf("%s is in the table, and no command of Redis", c.Name)
		}
	}
	for name := range unlisted {
		if !known[name] {
			t.Errorf("%s has a reason not to be in the table, and is no command of Redis", name)
		}
	}
	for name := range sharedInSpite {
		if (entry{name: name}).row().Class != Shared {
			t.Errorf("%s has a reason to be shared, and is not", name)
		}
	}
}

// checkKeys compares where the keys are.
func checkKeys(t *testing.T, e entry, row *Command) {
	k := row.Keys
	switch {
	case e.is("movablekeys"):
		if !k.Movable() {
			t.Errorf("%s: its keys must be found by its arguments", e.name)
		}
	case k.Movable(), k.First != e.first, k.Last != e.last, k.Step != e.step:
		t.Errorf("%s: keys at %d %d %d, not %d %d %d", e.name, k.First, k.Last, k.Step,
			e.first, e.last, e.step)
	}
}

// checkClass compares the class with the flags and the ACL categories.
func checkClass(t *testing.T, e entry, row *Command) {
	wrong := func(flag, want string) {
		t.Errorf("%s is flagged %s, so it must be %s", e.name, flag, want)
	}
	scripting := e.in("@scripting") && e.is("skip_monitor")
	switch row.Class {
	case Blocking, MayBlock:
		if !e.is("blocking") {
			t.Errorf("%s is said to block, and Redis does not say so", e.name)
		}
	case Shared, Slow, Occupying:
		switch {
		case e.is("blocking") || e.in("@blocking"):
			wrong("blocking", "Blocking or MayBlock")
		case scripting && row.Class != Slow:
			wrong("skip_monitor", "Slow")
		case sharedInSpite[e.name] != "" || sharedInSpite[row.Name] != "":
		case e.is("no_multi"), e.is("no_auth"), e.is("pubsub"),
			e.is("allow_busy") && !e.in("@scripting"),
			e.in("@connection"), e.in("@transaction"), e.in("@pubsub"):
			wrong(strings.Join(append(e.flags, e.categories...), " "),
				"Stateful, or have a reason not to be")
		case e.is("noscript") && !e.in("@admin") && !e.in("@scripting") &&
			!strings.HasPrefix(e.name, "acl|"):
			wrong("noscript", "Stateful, or about the server or scripts")
		}
	case Stateful, Greeting, Other:
		if data := e.is("write") || e.is("readonly"); data && e.first > 0 {
			wrong("write or readonly", "Shared: it is about keys alone")
		}
		if row.Class == Other && !e.in("@admin") {
			t.Errorf("%s: what it leaves on the connection must be said", e.name)
		}
	}
	if reads := e.is("readonly"); row.Foreign != foreign.None &&
		(reads || !scripting && !e.is("write")) {
		t.Errorf("%s can't take a lock: it does not write", e.name)
	}
}

// Rows are found by names as clients write them, also those of subcommands, without allocating.
func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"get a": "get", "GeT": "get", "client": "client", "CLIENT Kill": "client|kill",
		"client nosuch": "client", "client reply OFF": "client|reply|off",
		"client reply never": "client|reply", "client reply": "client|reply",
		"memory usage": "memory|usage", "get kill": "get", "nosuchcommand": "", "client|kill": "",
		strings.Repeat("g", MaxName+1): "", "client " + strings.Repeat("k", 100): "client",
	} {
		args := bytes.Fields([]byte(name))
		var got *Command
		if n := testing.AllocsPerRun(10, func() { got = Find(args[0]).For(args) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if got.Name != want {
			t.Errorf("%s: %q, not %q", name, got.Name, want)
		}
	}
}

// Each name is in one row, which has its place by its ID, and fits into the room for names.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for i := range Rows {
		c := &Rows[i]
		if seen[c.Name] || c.ID != i {
			t.Errorf("%q: twice, or at %d instead of %d", c.Name, c.ID, i)
		}
		seen[c.Name] = true
		words := strings.Split(c.Name, "|")
		if slices.ContainsFunc(words, func(word string) bool { return len(word) > MaxName }) {
			t.Errorf("%s is longer than MaxName", c.Name)
		}
		if len(words) > 1 && (c.Of == nil || c.Of.Name != strings.Join(words[:len(words)-1], "|")) {
			t.Errorf("%q is of %v", c.Name, c.Of)
		}
		joined := c.Nodes.Several() || c.Nodes == Split
		if c.Refused != "" && c.Nodes != One || c.Join != First && !joined {
			t.Errorf("%s: what it has to do with nodes contradicts itself", c.Name)
		}
	}
}

// Calls whose keys aren't at fixed places have them where the server says.
func TestKeysOfCalls(t *testing.T) {
	ask := asker(t)
	for _, call := range []string{
		"EVAL script 2 a b c", "EVALSHA sha 1 a b", "FCALL f 3 a b c d", "EVAL_RO script 1 a",
		"EVALSHA_RO sha 2 a b", "FCALL_RO f 1 a", "ZUNIONSTORE dest 2 a b WEIGHTS 1 2",
		"ZINTERSTORE dest 1 a AGGREGATE max", "ZDIFFSTORE dest 2 a b", "ZUNION 2 a b",
		"ZINTER 3 a b c WITHSCORES", "ZDIFF 1 a", "ZINTERCARD 2 a b LIMIT 1", "SINTERCARD 2 a b",
		"LMPOP 2 a b LEFT", "ZMPOP 1 a MIN", "BLMPOP 0 2 a b LEFT", "BZMPOP 0 1 a MIN",
		"XREAD COUNT 2 STREAMS a b 0 0", "XREAD STREAMS streams 0",
		"XREADGROUP GROUP streams streams STREAMS a b > >",
		"XREADGROUP GROUP g c COUNT 1 NOACK STREAMS a >", "SORT a",
		"SORT a BY x_* LIMIT 0 5 GET y_* GET # DESC ALPHA STORE dest", "SORT a STORE x STORE y",
		"SORT a BY STORE GET STORE STORE z", "SORT_RO a", "GEORADIUS a 1 2 3 km STORE dest",
		"GEORADIUS a 1 2 3 km STOREDIST dest COUNT 2",
		"GEORADIUSBYMEMBER a m 3 km STOREDIST y", "GEORADIUS a 1 2 3 km",
		"GEORADIUSBYMEMBER a store 3 km", "GEORADIUSBYMEMBER a STOREDIST 3 km STORE store",
		"MIGRATE host 1 a 0 100 COPY", "MSETNX a 1 b 2", "BITOP AND dest a b", "BLPOP a b c 0",
		"COPY a b DB 1", "OBJECT ENCODING a", "MEMORY USAGE a SAMPLES 3", "XGROUP CREATE a g $",
		"SMOVE a b m", "LCS a b", "RENAME a b", "BLMOVE a b LEFT LEFT 0", "PFMERGE a b c",
		"SINTERSTORE a b c", "SET a b", "MGET a b c", "HELLO",
	} {
		words := strings.Fields(call)
		var want []string
		if v := ask(append([]string{"COMMAND", "GETKEYS"}, words...)...); !v.IsError() {
			for _, key := range v.Elems {
				want = append(want, string(key.Text))
			}
		}
		args := bytes.Fields([]byte(call))
		var got []string
		for _, i := range Find(args[0]).For(args).Keys.Positions(args, nil) {
			got = append(got, words[i])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
			t.Errorf("%s: %q, not %q", call, got, want)
		}
	}
}
