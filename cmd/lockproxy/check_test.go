package main

import (
	"bytes"
	"encoding/json"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// slowSentinel is what check says of a Sentinel that has not answered within its second.
var slowSentinel = regexp.MustCompile(`: Sentinel .*: i/o timeout\)|no Sentinel has been asked yet`)

// check runs lockproxy check and returns what it prints. It runs it again if a Sentinel was too
// slow.
func check(t *testing.T, status int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	got := 0
	testwait.Until(t, "the Sentinels answer in time", func() bool {
		out.Reset()
		got = run(append([]string{"check"}, args...), &out, &errs)
		return !slowSentinel.MatchString(out.String())
	})
	if got != status || errs.Len() > 0 || strings.Contains(out.String(), secret) {
		t.Errorf("%v: status %d, want %d:\n%s%s", args, got, status, &out, &errs)
	}
	return out.String()
}

func wantLines(t *testing.T, printed string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		level, text, _ := strings.Cut(line, " ")
		found := slices.ContainsFunc(strings.Split(printed, "\n"), func(got string) bool {
			return strings.HasPrefix(got, level+"  ") &&
				strings.Contains(strings.Join(strings.Fields(got), " "), text)
		})
		if !found {
			t.Errorf("no line %q in:\n%s", line, printed)
		}
	}
}

func TestCheckTellsOfACluster(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 3, 0)
	printed := check(t, 0, "--upstream", c.URL())
	wantLines(t, printed, "PASS upstream 127.0.0.1:", "PASS cluster 3 masters serve all slots",
		"PASS rights user default may do all")
}

func TestCheckTellsOfTheUpstream(t *testing.T) {
	for _, c := range []struct {
		name   string
		redis  []string
		status int
		lines  []string
	}{
		{"good", []string{"--appendonly", "yes", "--appendfsync", "always"}, 0, []string{
			"PASS config flags and environment are valid", "PASS upstream 127.0.0.1:",
			"PASS version Redis ", "PASS role master",
			"PASS eviction maxmemory-policy is noeviction",
			"PASS persistence appendonly with appendfsync always", "PASS replicas none",
			"PASS clock the upstream's clock and this machine's differ by",
			"PASS rights user default may do all that the lock commands need"}},
		{"everysec", []string{"--appendonly", "yes"}, 0,
			[]string{"WARN persistence appendonly with appendfsync everysec"}},
		{"snapshots", []string{"--save", "60 1"}, 0,
			[]string{"WARN persistence snapshots only (save 60 1)"}},
		{"nothing", nil, 0, []string{"WARN persistence none"}},
		{"may evict", []string{"--maxmemory-policy", "allkeys-lru"}, 0,
			[]string{"WARN eviction maxmemory-policy is allkeys-lru"}},
		{"evicts", []string{"--maxmemory-policy", "volatile-ttl", "--maxmemory", "100mb"}, 1,
			[]string{"FAIL eviction maxmemory-policy is volatile-ttl"}},
		{"without scripts", []string{"--rename-command", "EVAL", "", "--rename-command", "EVALSHA",
			""}, 1, []string{"FAIL commands the server has no EVAL, EVALSHA, for LOCK, UNLOCK, " +
			"RELOCK, LOCKINFO: it must be a Redis or Valkey with scripts"}},
		{"refuses writes", []string{"--min-replicas-to-write", "1"}, 1, []string{
			`FAIL writes SET answers "NOREPLICAS Not enough good replicas to write`}},
		{"wants a login", []string{"--requirepass", secret}, 0,
			[]string{"PASS upstream", "WARN rights put the login of a user that locks into --upstream"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := testredis.Start(t, c.redis...)
			wantLines(t, check(t, c.status, "--upstream", server.URL()), c.lines...)
		})
	}
	server := testredis.Start(t)
	wantLines(t, check(t, 1, "--upstream", server.URL(), "--min-replicas", "1"),
		"FAIL replicas 0 are connected, and --min-replicas is 1")
	wantLines(t, check(t, 1, "--upstream", "redis://:"+secret+"@127.0.0.1:1"),
		"FAIL upstream cannot reach 127.0.0.1:1")
	wantLines(t, check(t, 1, "--upstream", "redis://:"+secret+"@"+server.Addr()+"/99"),
		"FAIL upstream")
	wantLines(t, check(t, 1, "--tls-cert", "/nowhere/c", "--tls-key", "/nowhere/k"),
		"FAIL tls --tls-cert /nowhere/c")
	wantLines(t, check(t, 0), "WARN upstream the embedded in-memory store keeps and shares nothing")
	wantLines(t, check(t, 0, "--config", configFile(t, "upstream = \""+server.URL()+"\"")),
		"PASS config /", "PASS upstream")
}

func TestCheckFindsTheMasterBySentinels(t *testing.T) {
	group := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1, Sentinels: 1})
	wantLines(t, check(t, 0, "--upstream", group.URL()), "PASS upstream",
		"PASS role master, according to its Sentinels",
		"WARN replicas 1 are connected: a failover may "+
			"lose the last locks")
	wantLines(t, check(t, 0, "--upstream", group.URL(), "--min-replicas", "1"),
		"PASS replicas 1 are connected; a lock is given out once 1 have it")
}

// An invalid configuration is one line of error, and status 1.
func TestCheckRefusesABadConfiguration(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run([]string{"check", "--config", configFile(t, "max-client = 5")}, &out,
		&errs); status != 1 || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
		t.Errorf("status %d:\n%s%s", status, &out, &errs)
	}
}

func TestCheckPrintsJSON(t *testing.T) {
	var got struct {
		OK       bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(check(t, 1, "--json", "--upstream", "redis://127.0.0.1:1")),
		&got); err != nil {
		t.Fatal(err)
	}
	if got.OK || len(got.Findings) != 2 || got.Findings[0].Level != "PASS" ||
		got.Findings[1].Level != "FAIL" || got.Findings[1].About != "upstream" {
		t.Errorf("%+v", got)
	}
}

// What a user may do is told in terms of the lock that is named; checking leaves nothing behind.
// lockcmd/rights tries each right.
func TestCheckNamesMissingRights(t *testing.T) {
	server := testredis.Start(t)
	acl := func(rules ...string) {
		t.Helper()
		if got := server.Ask(append([]string{"ACL", "SETUSER", "app"}, rules...)...); got != "+OK" {
			t.Fatal(got)
		}
	}
	url := "redis://app:" + secret + "@" + server.Addr()
	acl("on", ">"+secret, "~app:*", "resetchannels", "&lockproxy:wake:*", "+@all")
	wantLines(t, check(t, 0, "--upstream", url, "--lock", "app:x"),
		"PASS rights user app may do all that the lock commands need")
	wantLines(t, check(t, 0, "--upstream", url), "PASS rights user app may use only some keys")
	wantLines(t, check(t, 1, "--upstream", url, "--lock", "other"),
		`FAIL rights user app lacks a key pattern that covers every name beginning with "other"`)
	acl("-scan", "-pubsub|channels")
	wantLines(t, check(t, 0, "--upstream", url, "--lock", "app:x", "--admin", "127.0.0.1:0"),
		"WARN rights user app lacks +scan, for LOCKSCAN",
		"WARN rights user app lacks +pubsub|channels, for links to the other proxies")
	acl("-evalsha", "-wait")
	wantLines(t, check(t, 1, "--upstream", url, "--lock", "app:x", "--min-replicas", "1"),
		"FAIL rights user app lacks +evalsha, for LOCK, UNLOCK, RELOCK, LOCKINFO",
		"FAIL rights user app lacks +wait, for LOCK with --min-replicas")
	acl("+@all", "resetkeys", "~app:x")
	wantLines(t, check(t, 1, "--upstream", url, "--lock", "app:x"),
		"FAIL rights user app lacks a key pattern")
	acl("-info")
	wantLines(t, check(t, 0, "--upstream", url),
		"WARN info cannot read the version and settings")
	if keys := server.Ask("DBSIZE"); keys != ":0" {
		t.Errorf("%s keys were left behind", keys)
	}
}

// In a cluster proxies wake each other by the channels of slots.
func TestCheckNamesMissingRightsOfACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 1, 0)
	url := strings.Replace(cluster.URL(), "://", "://app:"+secret+"@", 1)
	acl := func(rules ...string) {
		t.Helper()
		if got := cluster.Nodes[0].Ask(append([]string{"ACL", "SETUSER", "app"},
			rules...)...); got != "+OK" {
			t.Fatal(got)
		}
	}
	acl("on", ">"+secret, "~app:*", "resetchannels", "&lockproxy:wake:*", "+@all", "-publish",
		"-subscribe")
	wantLines(t, check(t, 0, "--upstream", url, "--lock", "app:x"),
		"PASS rights user app may do all that the lock commands need")
	wantLines(t, check(t, 0, "--upstream", url, "--lock", "app:x", "--admin", "127.0.0.1:0"),
		"WARN rights user app lacks +subscribe, for links to the other proxies")
	acl("-client|tracking")
	wantLines(t, check(t, 0, "--upstream", url, "--lock", "app:x"),
		"WARN rights user app lacks +client|tracking, for being told at once of changes")
	acl("+client|tracking", "-spublish", "-ssubscribe")
	wantLines(t, check(t, 0, "--upstream", url, "--lock", "app:x"),
		"WARN rights user app lacks +spublish, for ")
	wantLines(t, check(t, 0, "--upstream", url, "--lock", "app:x"),
		"WARN rights user app lacks +ssubscribe, for ")
	acl("-asking", "-cluster|nodes")
	wantLines(t, check(t, 0, "--upstream", url, "--lock", "app:x"), "WARN rights user app lacks "+
		"+asking +cluster|nodes, for locks whose slot is moving to another node")
}

func TestCheckJudgesClocks(t *testing.T) {
	for _, c := range []struct {
		ahead, took time.Duration
		want        string
	}{
		{300 * time.Millisecond, 0, "PASS the upstream's clock and this machine's differ by 300ms"},
		{-1500 * time.Millisecond, time.Second, "PASS the upstream's clock and this machine's differ " +
			"by 1.5s"},
		{time.Minute, time.Second, "WARN the upstream's clock is 1m0s ahead of this machine's"},
		{-time.Minute, time.Second, "WARN the upstream's clock is 1m0s behind this machine's"},
	} {
		var f findings
		f.addClock(c.ahead, c.took)
		if got := f[0].Level + " " + f[0].Text; !strings.HasPrefix(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Some servers speak Redis's protocol, but run no scripts.
func TestCheckFailsWithoutScripts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go redcon.Serve(ln, func(conn redcon.Conn, cmd redcon.Command) { // ends with the listener
		switch strings.ToUpper(string(cmd.Args[0])) {
		case "PING":
			conn.WriteString("PONG")
		case "EVAL", "EVALSHA":
			conn.WriteError("ERR scripts are switched off here")
		default:
			conn.WriteError("ERR unknown command")
		}
	}, nil, nil)
	printed := check(t, 1, "--upstream", "redis://"+ln.Addr().String())
	wantLines(t, printed,
		`FAIL scripts EVAL answers "ERR scripts are switched off here": each lock`,
		"FAIL commands the server has no TIME, MGET, EXISTS, SET, DEL, for LOCK, UNLOCK")
	if strings.Contains(printed, "may do all") {
		t.Errorf("it passes the user's rights:\n%s", printed)
	}
}

func TestCheckKnowsValkeysMode(t *testing.T) {
	var found findings
	checkVersion(map[string]string{"redis_version": "7.2.4", "server_mode": "cluster"}, &found)
	if len(found) != 1 || found[0].Text != "Redis 7.2.4, cluster" {
		t.Errorf("%+v", found)
	}
}
