package relay_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/wire"
)

// diffServerArgs are the options of every redis-server here.
var diffServerArgs = []string{"--enable-debug-command", "yes", "--enable-module-command", "yes",
	"--latency-tracking", "no",
	"--slowlog-log-slower-than", "-1"} // on a busy machine there would be entries otherwise

// diffPair starts two identical redis-servers, the second with a proxy in front of it.
func diffPair(t *testing.T, args ...string) (direct, proxied *diffSide) {
	t.Helper()
	by := testredis.ChooseTransport(t, testredis.Upstreams, // a Unix socket's clients have one address
		testredis.TLS)
	start := func() (*testredis.Server, *diffSide) {
		acl := filepath.Join(t.TempDir(), "users.acl")
		if err := os.WriteFile(acl, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		server := testredis.StartBy(t, by, slices.Concat(diffServerArgs,
			[]string{"--aclfile", acl}, args)...)
		control, err := diffDial(server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { control.nc.Close() })
		_, port, _ := strings.Cut(server.Addr(), ":")
		return server, &diffSide{addr: server.Addr(), control: control, port: port}
	}
	_, direct = start()
	server, proxied := start()
	p := proxytest.Start(t, server.URL(), nil)
	proxied.addr, proxied.proxied = p.Addr, true
	if p.Shares {
		proxied.letIn = func() { proxytest.AwaitJudged(t, p) }
	}
	return direct, proxied
}

func (s *diffScript) run(t *testing.T, proto string, seen *diffCoverage,
	commands *diffCommandList) {
	direct, proxied := diffPair(t, s.server...)
	for _, c := range s.conversations {
		proto := proto
		if c.proto == "raw" && proto == "2" {
			proto = "raw"
		}
		if c.leftOut() || c.proto != "" && c.proto != proto {
			continue
		}
		held := func(t *testing.T, pipelined bool) {
			var want, got []diffEvent
			var wantErr, gotErr error
			var both sync.WaitGroup
			both.Go(func() { want, wantErr = c.hold(direct, proto, pipelined) })
			both.Go(func() { got, gotErr = c.hold(proxied, proto, pipelined) })
			both.Wait()
			diffCompare(t, s.file, want, got)
			if wantErr != nil {
				t.Errorf("%s, directly: %v", s.file, wantErr)
			}
			if gotErr != nil {
				t.Errorf("%s, through the proxy: %v", s.file, gotErr)
			}
			for _, e := range want {
				if strings.HasSuffix(e.reply, "(nothing comes)") ||
					strings.HasSuffix(e.reply, "(not closed)") {
					t.Errorf("%s:%d: %s: Redis does not answer as the table expects: %q", s.file,
						e.step.line, e.step.text, e.reply)
				}
				if os.Getenv("DIFF_SHOW") != "" { // to see Redis's answers while writing a table
					t.Logf("%s -> %s", e.step.text, diffShow(e.reply))
				}
				seen.note(e.step.command(commands.containers), e.reply)
			}
		}
		name := strings.ReplaceAll(c.name, " ", "_")
		t.Run(name, func(t *testing.T) { held(t, false) })
		if c.pipelineable() {
			t.Run(name+"_in_one_pipeline", func(t *testing.T) { held(t, true) })
		}
	}
}

// A diffCommand is what COMMAND says about one command or subcommand.
type diffCommand struct {
	name     string // "get", "client|id"
	arity    int
	firstKey int
	blocking bool
}

type diffCommandList struct {
	commands   []diffCommand
	containers map[string]bool // commands that have subcommands
}

// diffCommands asks a redis-server for its commands.
func diffCommands(t *testing.T) *diffCommandList {
	server := testredis.Start(t)
	conn, err := diffDial(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.nc.Close()
	names, err := wire.Parse(conn.do("COMMAND", "LIST"))
	if err != nil || len(names.Elems) == 0 {
		t.Fatalf("COMMAND LIST: %v", err)
	}
	infos, err := wire.Parse(conn.do("COMMAND"))
	if err != nil {
		t.Fatalf("COMMAND: %v", err)
	}
	list := &diffCommandList{containers: map[string]bool{}}
	byName := map[string]diffCommand{}
	note := func(info wire.Value) {
		name := strings.ToLower(info.Elems[0].Text) // some of Redis 8 are in capitals
		c := diffCommand{name: name, arity: int(info.Elems[1].Int),
			firstKey: int(info.Elems[3].Int)}
		for _, flag := range info.Elems[2].Elems {
			c.blocking = c.blocking || flag.Text == "blocking"
		}
		byName[c.name] = c
	}
	for _, info := range infos.Elems {
		note(info)
		if len(info.Elems) > 9 {
			for _, sub := range info.Elems[9].Elems {
				list.containers[strings.ToLower(info.Elems[0].Text)] = true
				note(sub)
			}
		}
	}
	for _, listed := range names.Elems {
		if _, ok := byName[strings.ToLower(listed.Text)]; !ok {
			t.Errorf("COMMAND LIST has %s, COMMAND does not", listed.Text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		list.commands = append(list.commands, byName[name])
	}
	return list
}

// words are the first words of a call of a command or subcommand.
func (c diffCommand) words() []string { return strings.Split(c.name, "|") }

// diffArity sends every command with too few words and, where possible, with too many.
func diffArity(t *testing.T, proto string, seen *diffCoverage, commands *diffCommandList) {
	conversation := &diffConversation{}
	add := func(args ...string) {
		conversation.steps = append(conversation.steps, diffStep{text: strings.Join(args, " "),
			args: args, replies: 1})
	}
	for _, c := range commands.commands {
		words := c.words()
		least := max(c.arity, -c.arity)
		if len(words) <= least-1 {
			add(slices.Concat(words, slices.Repeat([]string{"1"}, least-1-len(words)))...)
		}
		if c.arity > 0 {
			add(slices.Concat(words, slices.Repeat([]string{"1"}, least+1-len(words)))...)
		}
		if commands.containers[c.name] {
			add(c.name, "nosuchsubcommand", "x")
		}
	}
	add("nosuchcommand", "with", "arguments")
	diffHoldBoth(t, "wrong number of words", conversation, proto, seen, commands)
}

// diffTypes sends every command that begins with a key, with
// as few words as possible, to a key of each type.
func diffTypes(t *testing.T, proto string, seen *diffCoverage, commands *diffCommandList) {
	kinds := []struct {
		name string
		make []string
	}{
		{"a string", []string{"SET", "k", "1"}},
		{"a list", []string{"RPUSH", "k", "1"}},
		{"a set", []string{"SADD", "k", "1"}},
		{"a sorted set", []string{"ZADD", "k", "1", "1"}},
		{"a hash", []string{"HSET", "k", "1", "1"}},
		{"a stream", []string{"XADD", "k", "1-1", "1", "1"}},
		{"a missing key", []string{"DEL", "k"}},
	}
	conversation := &diffConversation{}
	add := func(args ...string) {
		conversation.steps = append(conversation.steps, diffStep{text: strings.Join(args, " "),
			args: args, replies: 1})
	}
	for _, c := range commands.commands {
		words := c.words()
		if c.firstKey != len(words) {
			continue
		}
		call := append(words, "k")
		for len(call) < max(c.arity, -c.arity) {
			call = append(call, "1")
		}
		for _, kind := range kinds {
			if c.blocking && kind.name == "a missing key" {
				continue // it would wait
			}
			add("FLUSHDB")
			add(kind.make...)
			add(call...)
		}
	}
	diffHoldBoth(t, "keys of all types", conversation, proto, seen, commands)
}

// diffLarge sends requests that the proxy passes on in pieces.
func diffLarge(t *testing.T, proto string, seen *diffCoverage, commands *diffCommandList) {
	conversation := &diffConversation{}
	add := func(replies int, args ...string) {
		conversation.steps = append(conversation.steps, diffStep{text: args[0] + " …", args: args,
			replies: replies})
	}
	text := func(size int) string { return strings.Repeat("0123456789abcd\r\n", size/16) }
	var channels []string
	for i := range 3000 {
		channels = append(channels, fmt.Sprintf("a channel with a long name %d", i))
	}
	add(1, "SET", "k", text(1<<20))
	add(1, "GET", "k")
	add(1, "MULTI")
	add(1, "SET", "k", text(300<<10))
	add(1, "GET", "k")
	add(1, "EXEC")
	add(1, "ECHO", text(200<<10))
	add(1, "CLIENT", "SETNAME", text(100<<10))
	add(1, "CLIENT", "SETNAME", text(1200<<10))
	add(1, "CLIENT", "REPLY", text(100<<10))
	add(1, "SELECT", text(100<<10))
	add(1, "SELECT", text(1200<<10))
	add(1, "AUTH", text(1200<<10))
	add(1, "SELECT", "1")
	add(1, "GET", "k")
	add(1, "SELECT", "0")
	add(1, text(100<<10), "x")
	add(3000, append([]string{"SUBSCRIBE"}, channels...)...)
	add(1, "PING", text(100<<10))
	add(3000, append([]string{"UNSUBSCRIBE"}, channels...)...)
	add(1, "PING", text(100<<10))
	add(0, "CLIENT", "REPLY", "SKIP")
	add(0, "SET", "other", text(200<<10))
	add(1, "STRLEN", "other")
	add(1, append([]string{"DEL", "k"}, channels...)...)
	diffHoldBoth(t, "large requests", conversation, proto, seen, commands)
}

func diffHoldBoth(t *testing.T, name string, c *diffConversation, proto string, seen *diffCoverage,
	commands *diffCommandList) {
	for i := range c.steps {
		c.steps[i].line = i + 1
	}
	script := &diffScript{file: name, conversations: []*diffConversation{c}}
	c.name = name
	script.run(t, proto, seen, commands)
}

// A diffCoverage says which commands have been answered, and which refused, in any conversation.
type diffCoverage struct {
	mu       sync.Mutex
	answered map[string]bool
	refused  map[string]bool
}

func (c *diffCoverage) note(command, reply string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case command == "":
	case diffIsError(reply):
		c.refused[command] = true
	default:
		c.answered[command] = true
	}
}

// diffNeverAnswered and diffNeverRefused are the commands of
// which only wrong, or only right, calls are compared.
var (
	diffNeverAnswered = map[string]string{
		"sync":                         "answers with a stream: TestDifferentialReplica",
		"psync":                        "answers with a stream: TestDifferentialReplica",
		"config|rewrite":               "wants a server with a configuration file",
		"module|load":                  "wants a module",
		"module|loadex":                "wants a module",
		"module|unload":                "wants a module",
		"failover":                     "wants a replica",
		"cluster|failover":             "wants a second node",
		"cluster|forget":               "wants a second node",
		"cluster|replicate":            "wants a second node",
		"cluster|migrateslots":         "wants a second node",
		"cluster|cancelslotmigrations": "wants a second node",
		"cluster|syncslots":            "is said by nodes to each other",
		"clusterscan":                  "wants a cluster that is up",
	}
	diffNeverRefused = map[string]string{
		"quit": "always answered",
	}
)

// check fails for every command of the installed redis-server that is not in any conversation, in a
// right form and in a wrong one.
func (c *diffCoverage) check(t *testing.T, commands *diffCommandList) {
	t.Helper()
	if t.Failed() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // not all conversations were held
	}
	for _, command := range commands.commands {
		name := command.name
		alone := !commands.containers[name] || name == "command" // the others only have subcommands
		if _, known := diffNeverAnswered[name]; !known && alone && !c.answered[name] {
			t.Errorf("%s: no call in testdata/differential is answered without an error: add one",
				name)
		}
		if _, known := diffNeverRefused[name]; !known && !c.refused[name] {
			t.Errorf("%s: no call in testdata/differential is refused: add one", name)
		}
	}
}
