package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"lockproxy/lockcmd"
)

// wakeChannel is a channel as those on which proxies wake each other.
const wakeChannel = "lockproxy:wake:check"

// right is one of the upstream's commands that a locking user must be allowed.
type right struct {
	command string
	needs   []string // what can't be done without it
	level   string   // how bad that is
	// a request that finds out and does nothing; KEY stands for a key that begins with the lock's
	// name
	probe []any
}

// probeKey stands for a key in a right's probe.
const probeKey = "KEY"

// rights are what a locking user can need, as in docs/operations.md; and +select for databases
// other than 0.
var rights = []right{
	{"eval", locking, levelFail, []any{"EVAL", "return 1", "0"}},
	{"evalsha", locking, levelFail, []any{"EVALSHA", strings.Repeat("0", 40), "0"}},
	{"time", locking, levelFail, []any{"TIME"}},
	{"mget", locking, levelFail, []any{"MGET", probeKey}},
	{"exists", locking, levelFail, []any{"EXISTS", probeKey}},
	{"set", locking, levelFail, []any{"SET", probeKey, "", "XX"}}, // XX: only if it were there
	{"del", locking, levelFail, []any{"DEL", probeKey}},
	{"pttl", []string{"LOCK where another client's lock is at the key"}, levelWarn,
		[]any{"PTTL", probeKey}},
	{"wait", []string{"LOCK with --min-replicas"}, levelFail, []any{"WAIT", "0", "1"}},
	{"publish", []string{"waking waiters at other proxies at once"}, levelWarn,
		[]any{"PUBLISH", wakeChannel, ""}},
	{"subscribe", []string{"being woken at once by other proxies"}, levelWarn, nil},
	{"spublish", []string{"waking waiters at other proxies at once"}, levelWarn,
		[]any{"SPUBLISH", wakeChannel, ""}},
	{"ssubscribe", []string{"being woken at once by other proxies"}, levelWarn, nil},
	{"client|tracking", []string{"being told at once of changes by other clients"}, levelWarn,
		[]any{"CLIENT", "TRACKING", "OFF"}},
	{"scan", []string{"LOCKSCAN"}, levelWarn, []any{"SCAN", "0", "COUNT", "1"}},
	{"watch", fencing, levelWarn, []any{"WATCH", probeKey}},
	{"unwatch", fencing, levelWarn, []any{"UNWATCH"}},
	{"multi", fencing, levelWarn, []any{"MULTI"}},
	{"discard", fencing, levelWarn, []any{"DISCARD"}},
	{"exec", fencing, levelWarn, []any{"EXEC"}}, // an error without MULTI, but not NOPERM
}

var (
	locking = []string{"LOCK", "UNLOCK", "RELOCK", "LOCKINFO"}
	fencing = []string{"FENCE"}
)

// lookAtRights finds out what the user in --upstream may do, by doing it without effect. conn is a
// separate connection.
func (c *checkCommand) lookAtRights(
	ctx context.Context, client *redis.Client, conn *redis.Conn, found *findings,
) {
	key := c.Lock
	if key == "" {
		key = "lockproxy-check"
	}
	var missing []right
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
			found.add(levelFail, "rights", "could not be looked at: %v", err)
			return
		case strings.HasPrefix(text, "ERR unknown command"):
			found.add(r.level, "commands", "the server has no %s, which %s needs: it must be a "+
				"Redis or Valkey with scripts and all of these commands",
				strings.ToUpper(r.command), strings.Join(r.needs, ", "))
		case !strings.Contains(text, "NOPERM"): // EXEC says EXECABORT, and that within it
		case strings.Contains(text, "channel"):
			channel = true
		case strings.Contains(text, "command"):
			missing = append(missing, r)
		default:
			uncovered = true
		}
	}
	c.report(missing, uncovered, channel, found)
}

// needs reports whether a right is one that this upstream and these flags make necessary.
func (c *checkCommand) needs(r right) bool {
	switch r.command {
	case "wait":
		return c.MinReplicas > 0
	case "publish", "subscribe", "client|tracking":
		return !c.upstream.IsCluster()
	case "spublish", "ssubscribe":
		return c.upstream.IsCluster()
	}
	return true
}

// probe asks for one right. The error is the upstream's refusal; others that its reply may be are
// none.
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
			args[i] = lockcmd.RecordKey([]byte(key)) + ":check"
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
	var groups []string // what can't be done, in order, with what is missing for it
	lacks, levels := map[string][]string{}, map[string]string{}
	for _, r := range missing {
		what := strings.Join(r.needs, ", ")
		if lacks[what] == nil {
			groups = append(groups, what)
		}
		lacks[what] = append(lacks[what], "+"+r.command)
		levels[what] = r.level
	}
	for _, what := range groups {
		found.add(levels[what], "rights", "user %s lacks %s, for %s", user,
			strings.Join(lacks[what], " "), what)
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
	case len(missing) == 0 && !channel:
		found.add(levelPass, "rights", "user %s may do all that the lock commands need", user)
	}
}
