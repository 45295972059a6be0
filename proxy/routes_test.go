package proxy

import (
	"bytes"
	"strings"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/test/wire"
	"lockproxy/passthrough"
)

// Which way each request goes, by its name and its arguments.
func TestRouteOf(t *testing.T) {
	own, shared, scripts := passthrough.Home, passthrough.Shared, passthrough.Scripts
	greets, login := passthrough.Greets, passthrough.Login
	for _, c := range []struct {
		request string
		way     passthrough.Way
		effect  commands.Effect
	}{
		{"get a", shared, commands.NoEffect},
		{"gEt a", shared, commands.NoEffect},
		{"eval x 0", scripts, commands.NoEffect},
		{"JSON.SET a $ 1", shared, commands.NoEffect},
		{"ft.search i x", scripts, commands.NoEffect},
		{"json.debug memory a", own, commands.StickyState},
		{"nosuchcommand", own, commands.StickyState},
		{strings.Repeat("g", 100), own, commands.StickyState},
		{"blpop a 0", own, commands.NoEffect},
		{"xread streams a 0", shared, commands.NoEffect},
		{"xread count 1 BLOCK 0 streams a 0", own, commands.NoEffect},
		{"xreadgroup group streams me block 0 streams a >", own, commands.NoEffect},
		{"xreadgroup group g streams block 0 streams a >", own, commands.NoEffect},
		{"xreadgroup group g me streams a >", shared, commands.NoEffect},
		{"flushall", own, commands.NoEffect},
		{"flushall sync", own, commands.NoEffect},
		{"FLUSHDB SYNC", own, commands.NoEffect},
		{"flushdb async", own, commands.NoEffect},
		{"cluster setslot 1 stable", own, commands.NoEffect},
		{"cluster info", shared, commands.NoEffect},
		{"script load x", shared, commands.NoEffect},
		{"script KILL", own, commands.NoEffect},
		{"function kill", own, commands.NoEffect},
		{"script debug yes", own, commands.StickyState},
		{"client", own, commands.StickyState},
		{"client help", shared, commands.NoEffect},
		{"client id", own, commands.KnownID},
		{"client pause 10 WRITE", own, commands.Pauses},
		{"client tracking on", own, commands.TrackingOn},
		{"client tracking OFF", own, commands.TrackingOff},
		{"client tracking", own, commands.StickyState},
		{"client getname", own, commands.NoEffect},
		{"client kill id 1", own, commands.NoEffect},
		{"client no-evict on", own, commands.StickyState},
		{"client no-touch on", own, commands.StickyState},
		{"client setname x", greets, commands.SetName},
		{"client setinfo lib-name x", greets, commands.SetLibName},
		{"client reply skip", own, commands.ReplySkip},
		{"client reply maybe", own, commands.StickyState},
		{"select 1", greets, commands.Select},
		{"auth a", login, commands.Auth},
		{"auth a b", login, commands.Auth},
		{"auth a b c", own, commands.Auth},
		{"hello 3 auth a b", login, commands.Hello},
		{"hello 3 auth a b setname x", own, commands.Hello}, // see inspectLogin
		{"hello 3 setname x auth a b", own, commands.Hello},
		{"hello 3 auth a b nonsense", own, commands.Hello},
		{"hello 3 auth a b auth a c", own, commands.Hello},
		{"select x", own, commands.Select},
		{"hello 3", greets, commands.Hello},
		{"reset", own, commands.Reset},
		{"quit", own, commands.Quit},
		{"post", own, commands.Closes},
		{"host:", own, commands.Closes},
		{"shutdown", own, commands.Closes},
		{"monitor", own, commands.Monitor},
		{"cluster syncslots ack", own, commands.Replicate},
		{"cluster nodes", shared, commands.NoEffect},
		{"wait 1 0", own, commands.NoEffect},
		{"debug sleep 0", own, commands.StickyState},
		{"readonly", own, commands.UnknownState},
		{"asking", own, commands.UnknownState},
		{"set a " + strings.Repeat("x", maxShared), own, commands.NoEffect},
	} {
		raw := wire.Append(nil, strings.Fields(c.request)...)
		req, _, err := resp.NewFramer(resp.Limits{}).Next(raw)
		if err != nil {
			t.Fatal(err)
		}
		if r := routeOf(lookup(req.Args[0]), req); r.Way != c.way || r.Effect != c.effect {
			t.Errorf("%.60s: way %v, effect %v; want %v, %v",
				c.request, r.Way, r.Effect, c.way, c.effect)
		}
	}
	req, _, err := resp.NewFramer(resp.Limits{}).Next([]byte("GET  'a b'\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if r := routeOf(lookup(req.Args[0]), req); string(r.Raw) != "*2\r\n$3\r\nGET\r\n$3\r\na b\r\n" {
		t.Errorf("an inline request goes by a lane as %q", r.Raw)
	}
}

func TestBefore72(t *testing.T) {
	for version, want := range map[string]bool{
		"6.0.16": true, "7.0.15": true, "7.2.0": false, "7.10": false, "8.0.2": false,
		"255.255.255": false, "": false, "7": false,
	} {
		if got := before72(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// Some servers close the connection at a request that does not end its lines with CRLF: it must not
// be one that others share.
func TestLooseRequestsGoByTheClientsOwnConnection(t *testing.T) {
	args := [][]byte{[]byte("get"), []byte("a")}
	r := routeOf(lookup(args[0]), resp.Request{Args: args, Loose: true})
	if r.Way != passthrough.Home {
		t.Errorf("it goes by way %v", r.Way)
	}
}

// A fence can run what Redis allows within a transaction and what leaves nothing on the connection,
// wherever it goes otherwise.
func TestFenceable(t *testing.T) {
	for request, want := range map[string]bool{
		"get a": true, "flushall": true, "flushdb sync": true, "nosuchcommand": true,
		"blpop a 0": false, "xread block 0 streams a 0": false, "select 1": false, "lock a 1": false,
		"subscribe a": false,
	} {
		if got := fenceable(bytes.Fields([]byte(request))); got != want {
			t.Errorf("%s: %v", request, got)
		}
	}
}
