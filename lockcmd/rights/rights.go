package rights

import (
	"context"
	"errors"
	"fmt"
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
	level   level    // how bad that is
	probe   []any    // a request that tells, and changes nothing
}

// level is how bad it is that a right is missing.
type level bool

const (
	works level = false // the lock commands work without it
	fails level = true
)

// probeKey stands for a key in a right's probe: one that begins with the lock's name.
const probeKey = "KEY"

// rights are what a locking user can need, as in docs/operations.md; and +select for databases
// other than 0.
var rights = []right{
	{"eval", locking, fails, []any{"EVAL", "return 1", "0"}},
	{"evalsha", locking, fails, []any{"EVALSHA", strings.Repeat("0", 40), "0"}},
	{"time", locking, fails, []any{"TIME"}},
	{"mget", locking, fails, []any{"MGET", probeKey}},
	{"exists", locking, fails, []any{"EXISTS", probeKey}},
	// XX: only if the key exists, which it does not
	{"set", locking, fails, []any{"SET", probeKey, "", "XX"}},
	{"del", locking, fails, []any{"DEL", probeKey}},
	{"zrange", sharing, works, []any{"ZRANGE", probeKey, "0", "0"}},
	{"zrangebyscore", sharing, works, []any{"ZRANGEBYSCORE", probeKey, "0", "0"}},
	{"zrevrange", sharing, works, []any{"ZREVRANGE", probeKey, "0", "0"}},
	{"zscore", sharing, works, []any{"ZSCORE", probeKey, ""}},
	{"zcount", sharing, works, []any{"ZCOUNT", probeKey, "0", "0"}},
	{"zadd", sharing, works, []any{"ZADD", probeKey, "XX", "0", ""}},
	{"zrem", sharing, works, []any{"ZREM", probeKey, ""}},
	{"zremrangebyscore", sharing, works, []any{"ZREMRANGEBYSCORE", probeKey, "0", "0"}},
	{"pexpire", sharing, works, []any{"PEXPIRE", probeKey, "1"}},
	{"pttl", []string{"LOCK where another client's lock is at the key"}, works,
		[]any{"PTTL", probeKey}},
	{"wait", []string{"LOCK with --min-replicas"}, fails, []any{"WAIT", "0", "1"}},
	{"waitaof", []string{"LOCK with --require-fsync (Redis 7.2)"}, fails,
		[]any{"WAITAOF", "1", "0", "1"}}, // an error without appendonly
	{"publish", []string{"waking waiters at other proxies at once"}, works,
		[]any{"PUBLISH", wakeChannel, ""}},
	{"subscribe", []string{"being woken at once by other proxies"}, works, nil},
	{"spublish", []string{"waking waiters at other proxies at once"}, works,
		[]any{"SPUBLISH", wakeChannel, ""}},
	{"ssubscribe", []string{"being woken at once by other proxies"}, works, nil},
	{"asking", moving, works, []any{"EVAL", askingScript, "0"}},
	{"cluster|nodes", moving, works, []any{"CLUSTER", "NODES"}},
	{"subscribe", linking, works, nil},
	{"pubsub|channels", linking, works, []any{"PUBSUB", "CHANNELS", wakeChannel}},
	{"client|tracking", []string{"being told at once of changes by other clients"}, works,
		[]any{"CLIENT", "TRACKING", "OFF"}},
	{"get", []string{"ONCE"}, works, []any{"GET", probeKey}},
	{"getrange", []string{"DONE"}, works, []any{"GETRANGE", probeKey, "0", "0"}},
	{"scan", []string{"LOCKSCAN"}, works, []any{"SCAN", "0", "COUNT", "1"}},
	{"watch", fencing, works, []any{"WATCH", probeKey}},
	{"unwatch", fencing, works, []any{"UNWATCH"}},
	{"multi", fencing, works, []any{"MULTI"}},
	{"discard", fencing, works, []any{"DISCARD"}},
	{"exec", fencing, works, []any{"EXEC"}}, // an error without MULTI, but not NOPERM
}

var (
	locking = []string{"LOCK", "UNLOCK", "RELOCK", "LOCKINFO"}
	sharing = []string{"LOCK SHARED", "LOCK LIMIT"}
	fencing = []string{"FENCE"}
	moving  = []string{"locks whose slot is moving to another node"}
	linking = []string{"links to the other proxies on the live page"}
)

// askingScript tries ASKING, to which a connection to the whole cluster answers by itself outside
// of scripts. Releases of Redis differ in what they say to a script that lacks a right.
const askingScript = `
local said = redis.pcall('ASKING')
local text = said.err or ''
if string.find(text, 'permission') or string.find(text, "can't run") then
	return redis.error_reply("NOPERM this user can't run this command")
end
return redis.status_reply('OK')`

// Purpose is what a user's rights are for.
type Purpose struct {
	User     string // "" is the default user
	Lock     string // a lock's name, if its keys are to be tried; "" tries keys that nobody uses
	Cluster  bool   // the server is one of a cluster
	Replicas bool   // LOCK waits for replicas
	Fsync    bool   // LOCK waits for the disk
	Links    bool   // live pages link to each other
}

// Lack is something that a user may not do, or that the server cannot do.
type Lack struct {
	About string // one word: rights, commands, scripts, persistence or writes
	Text  string
	Fails bool // otherwise the lock commands work, though less well
}

// Found is what Try has found out.
type Found struct {
	Lacks []Lack
	// Confined says that the user may not use the keys that were tried, which are no lock's.
	Confined bool
}

func (f *Found) add(l level, about, format string, args ...any) {
	f.Lacks = append(f.Lacks, Lack{about, fmt.Sprintf(format, args...), l == fails})
}

// Try finds out what a user may do, by doing it without effect. client logs in as the user. It
// takes connections of its own. The error says that there was no answer.
func Try(ctx context.Context, client *redis.Client, p Purpose) (found Found, err error) {
	conn := client.Conn() // for MULTI and WATCH
	defer conn.Close()
	if p.User == "" {
		p.User = "default"
	}
	var missing, unknown []right
	uncovered, channel := false, false
	for _, r := range rights {
		if !p.needs(r) {
			continue
		}
		err := p.probe(ctx, client, conn, r)
		if err == nil {
			continue
		}
		var said redis.Error
		switch text := err.Error(); {
		case !errors.As(err, &said):
			return found, fmt.Errorf("%s could not be tried: %w", strings.ToUpper(r.command), err)
		case strings.HasPrefix(text, "ERR unknown command"):
			unknown = append(unknown, r)
		case r.command == "eval" && !strings.Contains(text, "NOPERM"):
			found.add(fails, "scripts", "EVAL answers %q: each lock command is a script, so "+
				"the server must be a Redis or Valkey that runs them", text)
		case r.command == "waitaof" && !strings.Contains(text, "NOPERM"):
			found.add(fails, "persistence", "WAITAOF answers %q: with --require-fsync every "+
				"LOCK would be answered NOREPLICAS; set appendonly yes", text)
		case redis.HasErrorPrefix(err, "MISCONF") || redis.HasErrorPrefix(err, "NOREPLICAS"):
			if r.command == "set" {
				found.add(fails, "writes", "SET answers %q: no lock can be taken until Redis "+
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
	for _, l := range lacks(missing) {
		found.add(l.level, "rights", "user %s lacks +%s, for %s", p.User,
			strings.Join(l.commands, " +"), l.what)
	}
	if channel {
		found.add(works, "rights", "user %s lacks &lockproxy:wake:*: a lock released through "+
			"another proxy is noticed within 250 ms instead of at once", p.User)
	}
	if uncovered && p.Lock != "" {
		found.add(fails, "rights", "user %s lacks a key pattern that covers every name "+
			"beginning with %q, as ~%s*", p.User, p.Lock, p.Lock)
	}
	found.Confined = uncovered
	return found, nil
}

// lack is the rights that are missing for one purpose.
type lack struct {
	what     string
	commands []string
	level    level
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

// needs reports whether a right is needed for p.
func (p *Purpose) needs(r right) bool {
	if slices.Equal(r.needs, linking) {
		return p.Links
	}
	switch r.command {
	case "wait":
		return p.Replicas && !p.Fsync
	case "waitaof":
		return p.Fsync
	case "publish", "subscribe":
		return !p.Cluster
	case "spublish", "ssubscribe", "asking", "cluster|nodes":
		return p.Cluster
	}
	return true
}

// probe tries one right. The error is the server's refusal, or another reason.
func (p *Purpose) probe(
	ctx context.Context, client *redis.Client, conn *redis.Conn, r right,
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
	key := p.Lock
	if key == "" {
		key = "lockproxy-check"
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
