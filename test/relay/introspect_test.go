//go:build !race

package relay_test

// Answers to COMMAND are compared with those of Redis: the race detector would only slow that down.

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd/syntax"
)

// dialBoth connects directly and through the proxy, in one protocol version.
func dialBoth(t *testing.T, proto string) (direct, through *proxytest.Conn) {
	server, p := proxytest.StartBoth(t)
	direct, through = proxytest.Dial(t, server.Addr()), proxytest.Dial(t, p.Addr)
	for _, c := range []*proxytest.Conn{direct, through} {
		c.Do("HELLO " + proto)
	}
	return direct, through
}

// awaitStableOrder looks up commands until Redis's tables stop moving: it answers in their order,
// and at the start each lookup moves a bucket into the larger table.
func awaitStableOrder(direct *proxytest.Conn) {
	for range 1000 {
		direct.Do("COMMAND COUNT")
	}
}

// elements is the elements of an aggregate reply.
func elements(t *testing.T, raw string) []string {
	t.Helper()
	_, elems, err := wire.Elements(raw)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return elems
}

// COMMAND through the proxy is Redis's reply, byte for byte, followed by the lock commands.
func TestIntrospectionAddsToRedis(t *testing.T) {
	for _, proto := range []string{"2", "3"} {
		t.Run("RESP"+proto, func(t *testing.T) {
			direct, through := dialBoth(t, proto)
			awaitStableOrder(direct)
			for _, c := range []struct {
				command string
				each    int // elements of the reply per command
			}{
				{"COMMAND", 1}, {"command info", 1}, {"COMMAND DOCS", 2}, {"COMMAND LIST", 1},
				{"COMMAND LIST FILTERBY PATTERN *", 1},
				{"COMMAND LIST FILTERBY ACLCAT KEYSPACE", 1},
			} {
				want, got := direct.Do(c.command), through.Do(c.command)
				theirs, all := elements(t, want), elements(t, got)
				if len(all) != len(theirs)+c.each*len(syntax.Specs) ||
					!slices.Equal(all[:len(theirs)], theirs) || got[0] != want[0] {
					t.Errorf("%s: %d elements through the proxy, %d from Redis; the first:\n%q\n%q",
						c.command, len(all), len(theirs), all[0], theirs[0])
				}
			}
			n, _ := wire.Parse(direct.Do("COMMAND COUNT"))
			m, _ := wire.Parse(through.Do("COMMAND COUNT"))
			if m.Int != n.Int+int64(len(syntax.Specs)) {
				t.Errorf("COUNT: %v through the proxy, %v from Redis", m, n)
			}
			for _, same := range []string{
				"COMMAND INFO get nope", "COMMAND DOCS get nope", "COMMAND DOCS nope",
				"COMMAND HELP", "COMMAND nope", "COMMAND COUNT x",
				"COMMAND LIST x", "COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY PATTERN",
				"COMMAND LIST FILTERBY nope x",
				"COMMAND LIST FILTERBY MODULE lock", "COMMAND LIST FILTERBY ACLCAT pubsub",
				"COMMAND LIST FILTERBY ACLCAT nope",
				"COMMAND GETKEYS get a", "COMMAND GETKEYS", "COMMAND GETKEYS nope a",
				"COMMAND GETKEYSANDFLAGS set a b",
				"COMMAND GETKEYS nope", "COMMAND GETKEYS SET",
			} {
				if want, got := direct.Do(same), through.Do(same); got != want {
					t.Errorf("%s:\n got %q\nwant %q", same, got, want)
				}
			}
			want, got := direct.Do("COMMAND GETKEYS SET"), through.Do("COMMAND GETKEYS FENCE")
			if got != want {
				t.Errorf("COMMAND GETKEYS FENCE:\n got %q\nwant %q, as for SET", got, want)
			}
		})
	}
}

// Names are answered in the order in which they were asked for.
func TestIntrospectionOfNames(t *testing.T) {
	for _, proto := range []string{"2", "3"} {
		t.Run("RESP"+proto, func(t *testing.T) {
			direct, through := dialBoth(t, proto)
			theirs := elements(t, direct.Do("COMMAND INFO set nope client|list"))
			mixed := elements(t, through.Do("COMMAND INFO LOCK set nope unlock client|list"))
			if len(mixed) != 5 || mixed[1] != theirs[0] || mixed[2] != theirs[1] ||
				mixed[4] != theirs[2] {
				t.Fatalf("INFO: %q", mixed)
			}
			want := "*10|$4|lock|:-3|*4|+write|+denyoom|+noscript|+blocking|:1|:1|:1|*5|" +
				"+@keyspace|+@write|+@slow|+@scripting|+@blocking|" +
				"*1|$23|nondeterministic_output|*1|*6|$5|flags|*3|+RW|+access|+update|$12|" +
				"begin_search|*4|$4|type|$5|index|$4|spec|*2|$5|index|:1|" +
				"$9|find_keys|*4|$4|type|$5|range|$4|spec|*6|$7|lastkey|:0|$7|keystep|:1|$5|" +
				"limit|:0|*0|"
			if proto == "3" {
				want = "*10|$4|lock|:-3|~4|+write|+denyoom|+noscript|+blocking|:1|:1|:1|~5|" +
					"+@keyspace|+@write|+@slow|+@scripting|+@blocking|" +
					"~1|$23|nondeterministic_output|~1|%3|$5|flags|~3|+RW|+access|+update|$12|" +
					"begin_search|%2|$4|type|$5|index|$4|spec|%1|$5|index|:1|" +
					"$9|find_keys|%2|$4|type|$5|range|$4|spec|%3|$7|lastkey|:0|$7|keystep|:1|$5|" +
					"limit|:0|~0|"
			}
			if got := strings.ReplaceAll(mixed[0], "\r\n", "|"); got != want {
				t.Errorf("INFO lock:\n got %s\nwant %s", got, want)
			}

			their := elements(t, direct.Do("COMMAND DOCS getset append"))
			docs := elements(t,
				through.Do("COMMAND DOCS nope FENCE getset nope relock append nope"))
			var names []string
			for i := 0; i < len(docs); i += 2 {
				names = append(names, strings.Split(docs[i], "\r\n")[1])
			}
			if !slices.Equal(names, []string{"fence", "getset", "relock", "append"}) ||
				docs[3] != their[1] || docs[7] != their[3] {
				t.Errorf("DOCS of %q", names)
			}
			want = "$7|summary|$142|Let a lock run for a time from now, if the token still holds " +
				"it; returns whether it does, or the new token of a lock that has become exclusive|"
			if got := strings.ReplaceAll(docs[5], "\r\n", "|"); !strings.Contains(got, want) ||
				!strings.Contains(got, "$14|key_spec_index|:0|") {
				t.Errorf("DOCS relock: %s", got)
			}
		})
	}
}

func TestIntrospectionFiltersAndKeys(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	for _, want := range [][2]string{
		{"COMMAND LIST FILTERBY PATTERN LOCK*",
			"*6\r\n$4\r\nlock\r\n$7\r\nlockall\r\n$8\r\nlockinfo\r\n$8\r\nlockscan\r\n" +
				"$7\r\nlocktop\r\n$7\r\nlocklog\r\n"},
		{"COMMAND LIST FILTERBY PATTERN [^a-q]elo?k", "*1\r\n$6\r\nrelock\r\n"},
		{`COMMAND LIST FILTERBY pattern \fen[c]*e`, "*1\r\n$5\r\nfence\r\n"},
		{"COMMAND LIST FILTERBY PATTERN nothing", "*0\r\n"},
		{"COMMAND GETKEYS LOCK a 600", "*1\r\n$1\r\na\r\n"},
		{"COMMAND GETKEYS lock a 10 WAIT 3 OWNER b", "*1\r\n$1\r\na\r\n"},
		{"COMMAND GETKEYSANDFLAGS unlock a",
			"*1\r\n*2\r\n$1\r\na\r\n*3\r\n+RW\r\n+access\r\n+delete\r\n"},
		{"COMMAND GETKEYS LOCK a", "-ERR Invalid number of arguments specified for command\r\n"},
		{"COMMAND GETKEYS RELOCK a 1",
			"-ERR Invalid number of arguments specified for command\r\n"},
		{"COMMAND GETKEYS LOCKSCAN 0", "-ERR The command has no key arguments\r\n"},
		{"COMMAND GETKEYS LOCKTOP SHAPES", "-ERR The command has no key arguments\r\n"},
		{"COMMAND GETKEYS LOCKLOG a", "-ERR The command has no key arguments\r\n"},
		{"COMMAND GETKEYS LOCKINFO a WAITERS", "*1\r\n$1\r\na\r\n"},
		{"COMMAND GETKEYS FENCE k 1 MSET a 1 b 2", "*3\r\n$1\r\nk\r\n$1\r\na\r\n$1\r\nb\r\n"},
		{"COMMAND GETKEYS FENCE k 1 TIME", "*1\r\n$1\r\nk\r\n"},
		{"COMMAND GETKEYS FENCE k 1 ECHO x", "*1\r\n$1\r\nk\r\n"},
		{"COMMAND GETKEYS FENCE k 1", "-ERR Invalid number of arguments specified for command\r\n"},
		{"COMMAND GETKEYS FENCE k 1 nope a", "-ERR Invalid command specified\r\n"},
		{"COMMAND GETKEYSANDFLAGS FENCE k 1 SET a 1",
			"*2\r\n*2\r\n$1\r\nk\r\n*2\r\n+RO\r\n+access\r\n" +
				"*2\r\n$1\r\na\r\n*0\r\n"},
	} {
		c.Expect(want[0], want[1])
	}
	blocking := c.Do("COMMAND LIST FILTERBY ACLCAT blocking")
	if !strings.Contains(blocking, "$4\r\nlock\r\n") || strings.Contains(blocking, "unlock") {
		t.Errorf("FILTERBY ACLCAT blocking: %q", blocking)
	}
}

// COMMAND is answered in order, and according to the state of its connection.
func TestIntrospectionInEveryState(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Send("SET a 1", "COMMAND GETKEYS LOCK a 600", "GET a", "MULTI", "COMMAND INFO lock",
		"COMMAND COUNT", "EXEC", "PING")
	for _, want := range []string{"+OK\r\n", "*1\r\n$1\r\na\r\n", "$1\r\n1\r\n", "+OK\r\n",
		"+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n*1\r\n$-1\r\n:…", "+PONG\r\n"} {
		prefix, open := strings.CutSuffix(want, "…")
		if got := c.Reply(); got != want && !(open && strings.HasPrefix(got, prefix)) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.Send("CLIENT REPLY OFF", "COMMAND", "COMMAND DOCS lock", "CLIENT REPLY ON",
		"CLIENT REPLY SKIP", "COMMAND COUNT", "PING")
	for _, want := range []string{"+OK\r\n", "+PONG\r\n"} {
		if got := c.Reply(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.Do("SUBSCRIBE news")
	if got := c.Do("COMMAND DOCS lock"); !strings.HasPrefix(got,
		"-ERR Can't execute 'command|docs'") {
		t.Errorf("subscribed: %q", got)
	}

	c = proxytest.Dial(t, p.Addr)
	c.Do("ACL SETUSER reader on >pw +@read ~*")
	c.Do("AUTH reader pw")
	for _, command := range []string{"COMMAND", "COMMAND DOCS lock", "COMMAND INFO lock",
		"COMMAND COUNT", "COMMAND GETKEYS LOCK a 600"} {
		if got := c.Do(command); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("%s without the right to: %q", command, got)
		}
	}
}

// redis-cli's hints, completion and HELP are made of COMMAND DOCS.
func TestIntrospectionForRedisCLI(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	port := p.Addr[strings.LastIndexByte(p.Addr, ':')+1:]
	for _, run := range []struct {
		args []string
		want string
	}{
		{[]string{"COMMAND", "DOCS", "LOCK"}, "lock\nsummary\nTake a lock"},
		{[]string{"-3", "COMMAND", "DOCS", "LOCK"}, "lock summary Take a lock"},
		{[]string{"help", "lock"},
			"key timeout [SHARED|LIMIT n] [WAIT seconds|PLACE seconds] [SESSION [MAX seconds]] [OWNER name]"},
		{[]string{"help", "UNLOCK"}, "key [token|FORCE]"},
		{[]string{"help", "@lock"}, "key token command [arg [arg ...]]"},
		{[]string{"help", "@lock"}, "cursor [MATCH pattern] [COUNT n]"},
	} {
		out, err := exec.Command("redis-cli",
			append([]string{"-p", port}, run.args...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), run.want) {
			t.Errorf("redis-cli %v: %v\n%s\nwant %q in it", run.args, err, out, run.want)
		}
	}
}

// Every lock command has documentation.
func TestIntrospectionKnowsEveryLockCommand(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	for i := range syntax.Specs {
		if got := c.Do("COMMAND DOCS " + syntax.Specs[i].Name); !strings.HasPrefix(got,
			"*2\r\n") || strings.Contains(got, "summary\r\n$0\r\n") {
			t.Errorf("%s: %q", syntax.Specs[i].Name, got)
		}
	}
}

// A proxy in front of a proxy reports each lock command once.
func TestIntrospectionOfStackedProxies(t *testing.T) {
	server, inner := proxytest.StartBoth(t)
	outer := proxytest.Start(t, "redis://"+inner.Addr, nil)
	for _, proto := range []string{"HELLO 2", "HELLO 3"} {
		direct, one, two := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, inner.Addr),
			proxytest.Dial(t, outer.Addr)
		for _, c := range []*proxytest.Conn{direct, one, two} {
			c.Do(proto)
		}
		awaitStableOrder(direct)
		two.Expect("COMMAND COUNT", one.Do("COMMAND COUNT"))
		for _, command := range []string{"COMMAND", "COMMAND LIST", "COMMAND INFO",
			"COMMAND INFO lock get", "COMMAND DOCS", "COMMAND DOCS get lock",
			"COMMAND LIST FILTERBY PATTERN *lock"} {
			if want, got := elements(t, one.Do(command)),
				elements(t, two.Do(command)); !slices.Equal(got, want) {
				t.Errorf("%s: %d elements, want %d", command, len(got), len(want))
			}
		}
		two.Expect("COMMAND GETKEYS LOCK a 600", "*1\r\n$1\r\na\r\n")
		for _, command := range []string{"INFO lockproxy", "INFO server lockproxy",
			"INFO lockproxy server"} {
			got := two.Do(command)
			if strings.Count(got, "# Lockproxy") != 1 ||
				!strings.Contains(got, "upstream:"+inner.Addr) ||
				strings.Contains(command, "server") != strings.Contains(got, "# Server") {
				t.Errorf("%s: %q", command, got)
			}
		}
		token := two.Lock("job 600")
		one.Expect("LOCK job 600", map[string]string{"HELLO 2": "$-1\r\n",
			"HELLO 3": "_\r\n"}[proto])
		one.Expect(proxytest.Unlock("job", token), ":1\r\n")
	}
}
