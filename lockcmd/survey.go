package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/foreign"
)

// operator does what operators ask for, on background clients.
type operator struct {
	*background
	queues   *queues
	seen     *observed
	traffic  *foreignTraffic
	releases *releases
}

// Scan is one step of a SCAN for locks, as an identity. It returns the next cursor, 0 at the end,
// and names that may be locks.
func (l *operator) Scan(
	ctx context.Context, as Identity, cursor uint64, count int,
) (next uint64, keys []string, err error) {
	const pattern = "*" + recordInfix + "???"
	names, next, err := l.clients.client(as).Scan(ctx, cursor, pattern, int64(count)).Result()
	if err != nil {
		return 0, nil, err
	}
	for _, name := range names {
		if key, ok := lockOf(name); ok {
			keys = append(keys, key)
		}
	}
	return next, keys, nil
}

// Inspect asks the upstream about locks, as an identity, and returns those that are held now. It
// leaves out keys that the user may not see or that are no locks. It fails if the upstream does, or
// if the user may see none of the locks.
func (l *operator) Inspect(ctx context.Context, as Identity, keys []string) ([]LockInfo, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	args := make([][]any, len(keys))
	for i, key := range keys {
		c := l.call(infoScript, key, noFastPath, "")
		args[i] = c.evalArgs()
	}
	replies, err := l.pipeline(ctx, as, args, "EVALSHA", infoScript.SHA)
	if err != nil {
		return nil, err
	}
	if err := l.askBySource(ctx, as, args, replies); err != nil {
		return nil, err
	}
	var list []LockInfo
	var refused error
	for i, reply := range replies {
		got, err := reply.Result()
		var said redis.Error
		switch {
		case errors.Is(err, redis.Nil):
			continue
		case errors.As(err, &said):
			if !redis.HasErrorPrefix(err, "WRONGTYPE") {
				refused = err
			}
			continue
		case err != nil:
			return nil, err
		}
		v, id := scriptValue(got), LockID{as.DB, keys[i]}
		var seen foreign.Lock
		if len(v.Elems) == len(infoFields) {
			seen = l.traffic.addHolder(id, v.Elems)
		}
		if h, ok := heldInfo(v); ok {
			h.LockID = id
			h.addSeen(seen)
			list = append(list, h)
		}
	}
	if len(list) == 0 && refused != nil {
		return nil, refused
	}
	l.queues.addWaiters(list)
	return list, nil
}

// Proxies asks the upstream, as an identity, through which proxy a lock was taken ("" if that is
// not known), and which other proxies have clients that wait for it. A proxy is named by its ID.
func (l *operator) Proxies(
	ctx context.Context, as Identity, key string,
) (holder string, waiting []string, err error) {
	on := l.clients.on(ctx, as, key, time.Now().Add(backgroundTimeout))
	v, err := l.ask(on, infoScript, key, "waiters")
	switch {
	case err != nil:
		return "", nil, err
	case len(v.Elems) != 3:
		return "", nil, unexpected(infoScript, v)
	}
	for _, p := range waitingProxies(v) {
		if p.name != l.proxy {
			waiting = append(waiting, p.name)
		}
	}
	holder, _, _ = strings.Cut(string(v.Elems[2].Text), "-")
	return holder, waiting, nil
}

// askBySource asks again by the script's source, where the upstream or a cluster's node does not
// know its hash.
func (l *operator) askBySource(
	ctx context.Context, as Identity, args [][]any, replies []*redis.Cmd,
) error {
	var indexes []int
	var again [][]any
	for i, reply := range replies {
		if redis.HasErrorPrefix(reply.Err(), "NOSCRIPT") {
			indexes, again = append(indexes, i), append(again, args[i])
		}
	}
	if len(again) == 0 {
		return nil
	}
	answers, err := l.pipeline(ctx, as, again, "EVAL", infoScript.Source)
	for i, index := range indexes {
		replies[index] = answers[i]
	}
	return err
}

func (l *operator) pipeline(
	ctx context.Context, as Identity, argLists [][]any, command, script string,
) ([]*redis.Cmd, error) {
	pipe := l.clients.client(as).Pipeline()
	replies := make([]*redis.Cmd, len(argLists))
	for i, args := range argLists {
		replies[i] = pipe.Do(ctx, append([]any{command, script}, args...)...)
	}
	_, err := pipe.Exec(ctx)
	var said redis.Error
	if errors.As(err, &said) {
		err = nil // each reply has its own
	}
	return replies, err
}

// Force releases a lock as an identity, if it still has f's token: an operator ends the lock that
// was shown, not one that was acquired since. It writes a line to the log.
func (l *operator) Force(
	ctx context.Context, as Identity, f ForcedUnlock,
) (released bool, err error) {
	as.DB = f.DB
	id := LockID{f.DB, f.Key}
	on := operatorConn{l.clients.on(ctx, as, f.Key, time.Now().Add(backgroundTimeout))}
	token := proof{"revoke", strconv.FormatInt(f.Token, 10)}
	released, err = l.releases.release(on, id, as, token, true)
	l.seen.audit(f, released, err)
	if err != nil {
		return false, fmt.Errorf("release %s: %w", strings.ToValidUTF8(f.Key, "?"), err)
	}
	return released, nil
}
