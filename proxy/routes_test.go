package proxy

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"lockproxy/passthrough"
)

// sharedInSpite are the commands that go by connections which others use though Redis says of them what makes one look twice, each with the
// reason.
var sharedInSpite = map[string]string{
	"echo":       "@connection: answers with its argument",
	"ping":       "@connection: a session that has subscribed has a connection of its own",
	"command":    "@connection: tells of the server",
	"publish":    "@pubsub: gives to others, the publisher's connection is as before",
	"save":       "no_multi: it may take long, and changes nothing on the connection",
	"spublish":   "@pubsub: as PUBLISH",
	"pubsub":     "@pubsub: tells of the server",
	"xread":      "@blocking: only with BLOCK, which inspectRead finds",
	"xreadgroup": "@blocking: as XREAD",
}

// newer are the shareable commands that the installed Redis doesn't know yet.
const newer = `
	hexpire hexpireat hexpiretime hgetdel hgetex hpersist hpexpire hpexpireat hpexpiretime hpttl hsetex httl
	waitaof xackdel xdelex`

// Nothing that Redis flags as blocking, or as about the connection, goes by one that others use, but for a stated reason; and each
// name in the table is a command.
func TestTableAgainstRedis(t *testing.T) {
	server := testredis.Start(t)
	raw := ask(t, server.Addr(), "COMMAND")
	_, entries, err := resp.Elements(raw)
	if err != nil || len(entries) < 200 {
		t.Fatalf("COMMAND: %d entries, %v", len(entries), err)
	}
	known := map[string]bool{}
	reasons := map[string]bool{}
	for _, entry := range entries {
		v, err := resp.ParseValue(entry)
		if err != nil || len(v.Elems) < 7 {
			t.Fatalf("%.100q: %v", entry, err)
		}
		name := string(v.Elems[0].Text)
		known[name] = true
		cmd := lookup([]byte(name))
		if cmd.lock != nil || cmd.way == passthrough.Own {
			continue
		}
		var why []string
		flags := texts(v.Elems[2])
		for _, word := range append(flags, texts(v.Elems[6])...) {
			switch word {
			case "blocking", "pubsub", "no_multi", "no_auth", "@blocking", "@connection", "@transaction", "@pubsub":
				why = append(why, word)
			}
		}
		if slices.Contains(flags, "noscript") && !slices.Contains(texts(v.Elems[6]), "@admin") && !scripts[name] && !dataNoscript[name] {
			why = append(why, "noscript")
		}
		reasons[name] = true
		if len(why) > 0 && sharedInSpite[name] == "" {
			t.Errorf("%s goes by connections that others use, though it is flagged %q", name, why)
		}
	}
	for name := range sharedInSpite {
		if !reasons[name] {
			t.Errorf("%s has a reason to be shared, and isn't", name)
		}
	}
	for name, cmd := range table {
		if cmd.lock != nil || cmd.effect == passthrough.Closes || known[name] {
			continue
		}
		if !slices.Contains(strings.Fields(newer), name) {
			t.Errorf("%s is in the table, and no command of Redis", name)
		}
	}
}

// scripts run scripts, which scripts may not. They go by lanes of their own.
var scripts = map[string]bool{"eval": true, "evalsha": true, "eval_ro": true, "evalsha_ro": true, "fcall": true, "fcall_ro": true, "script": true, "function": true}

// dataNoscript are forbidden in scripts for other reasons than a connection's state.
var dataNoscript = map[string]bool{"save": true, "bgsave": true, "bgrewriteaof": true, "config": true}

func texts(v resp.Value) (list []string) {
	for _, e := range v.Elems {
		list = append(list, string(e.Text))
	}
	return list
}

// Which way each request goes, by its name and its arguments.
func TestRouteOf(t *testing.T) {
	own, shared, scripts := passthrough.Own, passthrough.Shared, passthrough.Scripts
	for _, c := range []struct {
		request string
		way     passthrough.Way
		effect  passthrough.Effect
	}{
		{"get a", shared, passthrough.NoEffect},
		{"gEt a", shared, passthrough.NoEffect},
		{"eval x 0", scripts, passthrough.NoEffect},
		{"nosuchcommand", own, passthrough.Stays},
		{strings.Repeat("g", 100), own, passthrough.Stays},
		{"blpop a 0", own, passthrough.NoEffect},
		{"xread streams a 0", shared, passthrough.NoEffect},
		{"xread count 1 BLOCK 0 streams a 0", own, passthrough.NoEffect},
		{"xreadgroup group streams me block 0 streams a >", own, passthrough.NoEffect},
		{"xreadgroup group g streams block 0 streams a >", own, passthrough.NoEffect},
		{"xreadgroup group g me streams a >", shared, passthrough.NoEffect},
		{"script load x", shared, passthrough.NoEffect},
		{"script KILL", own, passthrough.NoEffect},
		{"function kill", own, passthrough.NoEffect},
		{"script debug yes", own, passthrough.Stays},
		{"client", own, passthrough.Stays},
		{"client help", shared, passthrough.NoEffect},
		{"client id", own, passthrough.Known},
		{"client pause 10 WRITE", own, passthrough.Pauses},
		{"client tracking on", own, passthrough.TrackingOn},
		{"client tracking OFF", own, passthrough.TrackingOff},
		{"client tracking", own, passthrough.Stays},
		{"client getname", own, passthrough.NoEffect},
		{"client kill id 1", own, passthrough.NoEffect},
		{"client no-evict on", own, passthrough.Stays},
		{"client no-touch on", own, passthrough.Stays},
		{"client setname x", own, passthrough.SetName},
		{"client setinfo lib-name x", own, passthrough.SetLibName},
		{"client reply skip", own, passthrough.ReplySkip},
		{"client reply maybe", own, passthrough.Stays},
		{"select 1", own, passthrough.Select},
		{"auth a", own, passthrough.Auth},
		{"hello 3", own, passthrough.Hello},
		{"reset", own, passthrough.Reset},
		{"quit", own, passthrough.Quit},
		{"post", own, passthrough.Closes},
		{"host:", own, passthrough.Closes},
		{"shutdown", own, passthrough.Closes},
		{"monitor", own, passthrough.Monitor},
		{"wait 1 0", own, passthrough.NoEffect},
		{"debug sleep 0", own, passthrough.Stays},
		{"readonly", own, passthrough.Marks},
		{"asking", own, passthrough.Marks},
		{"set a " + strings.Repeat("x", maxShared), own, passthrough.NoEffect},
	} {
		req, _, err := resp.NewFramer(resp.Limits{}).Next(resp.AppendCommand(nil, strings.Fields(c.request)...))
		if err != nil {
			t.Fatal(err)
		}
		if r := routeOf(lookup(req.Args[0]), req); r.way != c.way || r.Effect != c.effect {
			t.Errorf("%.60s: way %v, effect %v; want %v, %v", c.request, r.way, r.Effect, c.way, c.effect)
		}
	}
	req, _, err := resp.NewFramer(resp.Limits{}).Next([]byte("GET  'a b'\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if r := routeOf(lookup(req.Args[0]), req); string(r.raw) != "*2\r\n$3\r\nGET\r\n$3\r\na b\r\n" {
		t.Errorf("an inline request goes by a lane as %q", r.raw)
	}
}

// ask sends one command to a server and returns its raw reply.
func ask(t *testing.T, addr string, words ...string) []byte {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(5 * time.Second))
	nc.Write(resp.AppendCommand(nil, words...))
	var scan resp.Scanner
	var raw []byte
	piece := make([]byte, 64<<10)
	for {
		n, err := nc.Read(piece)
		raw = append(raw, piece[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		if _, done, err := scan.Scan(piece[:n]); done || err != nil {
			return raw
		}
	}
}

func TestBefore72(t *testing.T) {
	for version, want := range map[string]bool{"6.0.16": true, "7.0.15": true, "7.2.0": false, "7.10": false, "8.0.2": false, "255.255.255": false, "": false, "7": false} {
		if got := before72(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
