package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"lockproxy/lockcmd/keyname"
)

// wakeChannel is named like the channels on which proxies wake each other.
const wakeChannel = "lockproxy:wake:check"

// right is one of the upstream's commands that a locking user must be allowed.
type right struct {
	command string
	needs   []string // what can't be done without it
	level   string   // how bad that is
	probe   []any    // a request that tells, and changes nothing
}

// probeKey stands for a key in a right's probe: one that begins with the lock's name.
const probeKey = "KEY"

// rights are what a locking user can need, as in docs/operations.md; and +select for databases
// other than 0.
var rights = []right{
	{"eval", locking, levelFail, []any{"EVAL", "return 1", "0"}},
	{"evalsha", locking, levelFail, []any{"EVALSHA", strings.Repeat("0", 40), "0"}},
	{"time", locking, levelFail, []any{"TIME"}},
	{"mget", locking, levelFail, []any{"MGET", probeKey}},
	{"exists", locking, levelFail, []any{"EXISTS", probeKey}},
	// XX: only if the key exists, which it does not
	{"set", locking, levelFail, []any{"SET", probeKey, "", "XX"}},
	{"del", locking, levelFail, []any{"DEL", probeKey}},
	{"zrange", sharing, levelWarn, []any{"ZRANGE", probeKey, "0", "0"}},
	{"zrangebyscore", sharing, levelWarn, []any{"ZRANGEBYSCORE", probeKey, "0", "0"}},
	{"zrevrange", sharing, levelWarn, []any{"ZREVRANGE", probeKey, "0", "0"}},
	{"zscore", sharing, levelWarn, []any{"ZSCORE", probeKey, ""}},
	{"zcount", sharing, levelWarn, []any{"ZCOUNT", probeKey, "0", "0"}},
	{"zadd", sharing, levelWarn, []any{"ZADD", probeKey, "XX", "0", ""}},
	{"zrem", sharing, levelWarn, []any{"ZREM", probeKey, ""}},
	{"zremrangebyscore", sharing, levelWarn, []any{"ZREMRANGEBYSCORE", probeKey, "0", "0"}},
	{"pexpire", sharing, levelWarn, []any{"PEXPIRE", probeKey, "1"}},
	{"pttl", []string{"LOCK where another client's lock is at the key"}, levelWarn,
		[]any{"PTTL", probeKey}},
	{"wait", []string{"LOCK with --min-replicas"}, levelFail, []any{"WAIT", "0", "1"}},
	{"waitaof", []string{"LOCK with --require-fsync (Redis 7.2)"}, levelFail,
		[]any{"WAITAOF", "1", "0", "1"}}, // an error without appendonly
	{"publish", []string{"waking waiters at other proxies at once"}, levelWarn,
		[]any{"PUBLISH", wakeChannel, ""}},
	{"subscribe", []string{"being woken at once by other proxies"}, levelWarn, nil},
	{"spublish", []string{"waking waiters at other proxies at once"}, levelWarn,
		[]any{"SPUBLISH", wakeChannel, ""}},
	{"ssubscribe", []string{"being woken at once by other proxies"}, levelWarn, nil},
	{"subscribe", linking, levelWarn, nil},
	{"pubsub|channels", linking, levelWarn, []any{"PUBSUB", "CHANNELS", wakeChannel}},
	{"client|tracking", []string{"being told at once of changes by other clients"}, levelWarn,
		[]any{"CLIENT", "TRACKING", "OFF"}},
	{"get", []string{"ONCE"}, levelWarn, []any{"GET", probeKey}},
	{"type", []string{"DONE"}, levelWarn, []any{"TYPE", probeKey}},
	{"scan", []string{"LOCKSCAN"}, levelWarn, []any{"SCAN", "0", "COUNT", "1"}},
	{"watch", fencing, levelWarn, []any{"WATCH", probeKey}},
	{"unwatch", fencing, levelWarn, []any{"UNWATCH"}},
	{"multi", fencing, levelWarn, []any{"MULTI"}},
	{"discard", fencing, levelWarn, []any{"DISCARD"}},
	{"exec", fencing, levelWarn, []any{"EXEC"}}, // an error without MULTI, but not NOPERM
}

var (
	locking = []string{"LOCK", "UNLOCK", "RELOCK", "LOCKINFO"}
	sharing = []string{"LOCK SHARED", "LOCK LIMIT"}
	fencing = []string{"FENCE"}
	linking = []string{"links to the other proxies on the live page"}
)

// checkRights finds out what the user in --upstream may do, by doing it without effect. conn is a
// separate connection.
func (c *checkCommand) checkRights(
	ctx context.Context, client *redis.Client, conn *redis.Conn, found *findings,
) {
	key := c.Lock
	if key == "" {
		key = "lockproxy-check"
	}
	var missing, unknown []right
	uncovered, channel := false, false
	for _, r := range rights {
		if !c.needs(r) {
			continue
		}
		err := c.probe(ctx, client, conn, r, key)
		if err == nil {
			continue
		}
		var said redis.Error
		switch text := err.Error(); {
		case !errors.As(err, &said):
			found.add(levelFail, "rights", "%s could not be tried: %v", strings.ToUpper(r.command),
				err)
			return
		case strings.HasPrefix(text, "ERR unknown command"):
			unknown = append(unknown, r)
		case r.command == "eval" && !strings.Contains(text, "NOPERM"):
			found.add(levelFail, "scripts", "EVAL answers %q: each lock command is a script, so "+
				"the server must be a Redis or Valkey that runs them", text)
		case r.command == "waitaof" && !strings.Contains(text, "NOPERM"):
			found.add(levelFail, "persistence", "WAITAOF answers %q: with --require-fsync every "+
				"LOCK would be answered NOREPLICAS; set appendonly yes", text)
		case redis.HasErrorPrefix(err, "MISCONF") || redis.HasErrorPrefix(err, "NOREPLICAS"):
			if r.command == "set" {
				found.add(levelFail, "writes", "SET answers %q: no lock can be taken until Redis "+
					"accepts writes again", text)
			}
		case !strings.Contains(text, "NOPERM"): // EXEC says EXECABORT, and that within it
		case strings.Contains(text, "command"):
			missing = append(missing, r)
		case strings.Contains(text, "channel"):
			channel = true
		default:
			uncovered = true
		}
	}
	for _, l := range lacks(unknown) {
		found.add(l.level, "commands", "the server has no %s, for %s: it must be a Redis or "+
			"Valkey with scripts and all of these commands",
			strings.ToUpper(strings.Join(l.commands, ", ")), l.what)
	}
	c.report(missing, uncovered, channel, found)
}

// lack is the rights that are missing for one purpose.
type lack struct {
	what     string
	commands []string
	level    string
}

// lacks groups missing rights by their purpose.
func lacks(missing []right) (list []lack) {
	for _, r := range missing {
		what := strings.Join(r.needs, ", ")
		at := slices.IndexFunc(list, func(l lack) bool { return l.what == what })
		if at < 0 {
			at = len(list)
			list = append(list, lack{what: what, level: r.level})
		}
		list[at].commands = append(list[at].commands, r.command)
	}
	return list
}

// needs reports whether a right is one that this upstream and these flags make necessary.
func (c *checkCommand) needs(r right) bool {
	if slices.Equal(r.needs, linking) {
		return c.Admin != ""
	}
	switch r.command {
	case "wait":
		return c.MinReplicas > 0 && !c.RequireFsync
	case "waitaof":
		return c.RequireFsync
	case "publish", "subscribe":
		return !c.upstream.IsCluster()
	case "spublish", "ssubscribe":
		return c.upstream.IsCluster()
	}
	return true
}

// probe tries one right. The error is the upstream's refusal, or another reason.
func (c *checkCommand) probe(
	ctx context.Context, client *redis.Client, conn *redis.Conn, r right, key string,
) error {
	if r.probe == nil {
		subscribe := client.Subscribe
		if r.command == "ssubscribe" {
			subscribe = client.SSubscribe
		}
		sub := subscribe(ctx, wakeChannel)
		defer sub.Close()
		_, err := sub.Receive(ctx)
		return err
	}
	args := slices.Clone(r.probe)
	for i := range args {
		if args[i] == probeKey {
			// an unused key that begins as the lock does
			args[i] = keyname.Record([]byte(key)) + ":check"
		}
	}
	err := conn.Do(ctx, args...).Err()
	if err == redis.Nil {
		return nil
	}
	return err
}

func (c *checkCommand) report(missing []right, uncovered, channel bool, found *findings) {
	user := c.upstream.Initial.User
	if user == "" {
		user = "default"
	}
	for _, l := range lacks(missing) {
		found.add(l.level, "rights", "user %s lacks +%s, for %s", user,
			strings.Join(l.commands, " +"), l.what)
	}
	if channel {
		found.add(levelWarn, "rights", "user %s lacks &lockproxy:wake:*: a lock released through "+
			"another proxy is noticed within 250 ms instead of at once", user)
	}
	switch {
	case uncovered && c.Lock != "":
		found.add(levelFail, "rights", "user %s lacks a key pattern that covers every name "+
			"beginning with %q, as ~%s*", user, c.Lock, c.Lock)
	case uncovered:
		found.add(levelPass, "rights", "user %s is confined to some keys: name a lock with "+
			"--lock to see whether they cover it", user)
	case len(missing) == 0 && !channel && found.ok():
		found.add(levelPass, "rights", "user %s may do all that the lock commands need", user)
	}
}
