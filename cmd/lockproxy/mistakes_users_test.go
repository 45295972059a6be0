package main

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// What users get wrong is answered with what is wrong, with which argument or key, and what is
// wanted, or in Redis's own words. Each line is sent by a connection of its own; a slash ends a
// command.
func TestMistakesOfUsers(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	s.do("SET", "data", "text")
	s.do("RPUSH", "list", "x")
	s.do("SET", "theirs", "random", "NX", "PX", "3600000")
	s.do("LOCK", "held", "3600")
	s.do("ACL", "SETUSER", "limited", "on", ">pw", "~app:*", "+@all", "-evalsha", "-eval")
	const (
		help    = "; see LOCK HELP"
		options = "want SHARED, LIMIT n, WAIT seconds, SESSION, MAX seconds or OWNER name" + help
		seconds = " (seconds, greater than 0, at most 86400)"
		noLock  = "-WRONGTYPE Key holds a value that is not a lock: choose another name for the lock"
		inMulti = "-ERR Command not allowed inside a transaction: send it before MULTI, or use FENCE"
	)
	limited := "this user"
	if testredis.Since(7, 2) {
		limited = "User limited"
	}
	for line, want := range map[string]string{
		"LOCK job":     "-ERR wrong number of arguments for 'lock' command" + help,
		"LOCK job 10s": `-ERR timeout is not a float or out of range: "10s"` + seconds,
		"LOCK job -5":  `-ERR timeout is negative: "-5"` + seconds,
		"LOCK job 0":   `-ERR timeout is not a float or out of range: "0"` + seconds,
		"LOCK job 600 WAIT": `-ERR syntax error near "WAIT": WAIT lacks its value, want WAIT ` +
			"seconds" + help,
		"LOCK job 600 SESSION SESSION": `-ERR syntax error near "SESSION": SESSION is given twice` +
			help,
		"LOCK job 600 SHARED LIMIT 3": `-ERR syntax error near "LIMIT": SHARED and LIMIT exclude ` +
			"each other" + help,
		"LOCK job 600 WAIT -1": `-ERR WAIT is not a float or out of range: "-1" (seconds, 0 waits ` +
			"forever, at most 8589934592)",
		"LOCK job 600 SESION": `-ERR syntax error near "SESION": ` + options,
		"LOCK job 600 MAX 5":  `-ERR syntax error near "MAX": want SESSION MAX seconds` + help,
		"LOCK job 600 LIMIT 0": `-ERR value is not an integer or out of range: "0" (LIMIT, at least ` +
			"1)",
		"LOCK data 600":           noLock,
		"LOCK list 600":           noLock,
		"LOCKALL 600 2 free data": noLock,
		"UNLOCK data FORCE":       noLock,
		"LOCK held 600":           "null",
		"LOCK theirs 600":         "null",
		"UNLOCK held 12345":       ":0",
		"UNLOCK held":             ":0",
		"RELOCK held 12345 600":   ":0",
		"DONE page 12345 text":    ":0",
		"UNLOCK held 1.5": `-ERR value is not an integer or out of range: "1.5" (a ` +
			"token, or FORCE)",
		"FENCE held x SET k v": `-ERR value is not an integer or out of range: "x" (a token)`,
		"FENCE held 12345 SET k v": "-FENCED token 12345 does not hold the lock 'held' (any more): the " +
			"command was not run",
		"FENCE held 12345 BLPOP k 0": "-ERR 'blpop' can't be fenced: it blocks, or is not a " +
			"command on data that MULTI allows",
		"LOCKALL 600 3 a b": "-ERR Number of keys can't be greater than number of args",
		"LOCKALL 600 2 a a": `-ERR the keys should be different: "a"`,
		"ONCE page":         "-ERR wrong number of arguments for 'once' command" + help,
		"ONCE list 600":     "-WRONGTYPE Operation against a key holding the wrong kind of value",
		"DONE page 12345 text EX 0": `-ERR invalid expire time in 'done' command: "0" (EX, 1 to ` +
			"1000000000000000)",
		"LOCKINFO held HOLDER": `-ERR syntax error near "HOLDER": want HOLDERS, WAITERS or CHANGED token` + help,
		"MULTI / LOCK job 600": inMulti,
		"MULTI / LOCK job 600 / EXEC": "-EXECABORT Transaction discarded because of " +
			"previous errors.",
		"SUBSCRIBE news / LOCK job 600": "-ERR Can't execute 'lock': only (P|S)SUBSCRIBE / " +
			"(P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
		"AUTH limited wrong": "-WRONGPASS invalid username-password pair or user is disabled.",
		"AUTH limited pw / LOCK app:job 600": "-NOPERM " + limited + " has no permissions to run the " +
			"'evalsha' command",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			c := proxytest.Dial(t, s.addr)
			got := ""
			for _, command := range strings.Split(line, " / ") {
				c.Send(command)
				got = c.Answer()
			}
			if got = strings.TrimSuffix(got, "\r\n"); got == "$-1" {
				got = "null"
			}
			if got != want {
				t.Errorf("the answer is\n%s, not\n%s", got, want)
			}
		})
	}
}

// Of another library's lock the text says who has it, and what frees it.
func TestMistakesWithOtherLocks(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	other := proxytest.Dial(t, s.addr)
	other.Expect("SET theirs random NX PX 3600000", "+OK\r\n")
	proxytest.Dial(t, s.addr).Expect("UNLOCK theirs FORCE", fmt.Sprintf("-WRONGTYPE Key \"theirs\" "+
		"holds another library's lock, which this proxy has seen %s take: its holder frees it, or "+
		"DEL; UNLOCK frees only what LOCK or a timestamp holds\r\n", other.LocalAddr()))
}

// What lockproxy run and top are told, and what they do not find.
func TestMistakesOfCommands(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	s.do("SET", "data", "text")
	plain := testredis.Start(t)
	const (
		notRun  = "; true was not run"
		noLock  = `lockproxy run: cannot get the lock "job": `
		noProxy = noLock + "cannot reach the proxy that --url names: "
	)
	for line, want := range map[string]string{
		"run -- true":               "lockproxy: missing flags: --key=NAME; see lockproxy run --help",
		"run --wat --key k -- true": "lockproxy: unknown flag --wat; see lockproxy run --help",
		"run --key job":             "lockproxy: no command to run; see lockproxy run --help",
		"run --key job --url PROXY --limit 0 -- true": "lockproxy: --limit: want a number from 1 to " +
			`10000, not "0"; see lockproxy run --help`,
		"run --key job --url PROXY -- no-such-command": "lockproxy run: cannot run no-such-command: " +
			`exec: "no-such-command": executable file not found in $PATH`,
		"run --key data --url PROXY -- true": `lockproxy run: cannot get the lock "data": WRONGTYPE Key holds a ` +
			"value that is not a lock: choose another name for the lock" + notRun,
		"run --key job --url REDIS -- true": noLock + "this is a Redis, not lockproxy: connect to " +
			"lockproxy's port, 6380 by default" + notRun,
		"run --key job --url TLS -- true": noProxy + "it does not speak TLS: name it by redis://, " +
			"not rediss:// (TLS: …)" + notRun,
		"run --key job --url redis://:pw@ADDR -- true": noLock + "AUTH: ERR AUTH <password> called " +
			"without any password configured for the default user. Are you sure your configuration " +
			"is correct?" + notRun,
		"run --key job --url redis+cluster://h -- true": "lockproxy: --url names one lockproxy: write " +
			"it as redis://, rediss:// or unix://",
		"top --url REDIS": "lockproxy top: no lockproxy answers there: --url names the lockproxy, not " +
			"the Redis behind it",
		"top --url TLS": "lockproxy top: it does not speak TLS: name it by redis://, not rediss://",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			places := strings.NewReplacer("PROXY", s.url, "REDIS", plain.URL(), "TLS",
				"rediss://"+s.addr, "ADDR", s.addr)
			var args []string
			for _, word := range strings.Fields(line) {
				args = append(args, places.Replace(word))
			}
			status, said := runHere(t, args...)
			said = strings.TrimSuffix(unchanging(said), "\n")
			want := strings.ReplaceAll(strings.ReplaceAll(want, "ADDR", s.addr), "\n", "")
			if strings.HasSuffix(want, "rediss://") { // the cause behind it depends on who is faster
				said, _, _ = strings.Cut(said, " (")
			}
			if said != want || status == 0 {
				t.Errorf("status %d, and it says\n%s, not\n%s", status, said, want)
			}
		})
	}
}
