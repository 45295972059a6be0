package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/resp"
)

// What an operator sees of the locks: not in any client's turn, but on connections of the proxy's own.

// LockInfo is a lock that is held by LOCK.
type LockInfo struct {
	LockID
	Token     int64
	Owner     string
	Client    string        // address
	Age       time.Duration // since it was acquired
	Remaining time.Duration // until it expires
	Session   bool
	Waiters   int // at this proxy
}

// Snapshot tells of locks without asking the upstream: those that were taken by way of this proxy and have not been seen to end,
// limit at most, and all that are waited for here. Of the latter, if others hold them, no more than the place and the waiters.
func (l *Locks) Snapshot(limit int) []LockInfo {
	places := map[LockID]int{}
	var list []LockInfo
	l.registry.sample(limit, func(lock *heldLock) {
		place := LockID{lock.as.DB, lock.key}
		places[place] = len(list)
		list = append(list, LockInfo{
			LockID: place, Token: lock.token, Owner: lock.owner, Client: lock.client, Session: lock.session,
			Age: monotonic.Since(lock.since), Remaining: -monotonic.Since(lock.until.Load()),
		})
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, q := range l.queues {
		place := LockID{id.DB, id.Key}
		i, ok := places[place]
		if !ok {
			i = len(list)
			list = append(list, LockInfo{LockID: place})
		}
		list[i].Waiters = q.len()
	}
	return list
}

// Scan is one step of a SCAN for locks, as as: it returns the next cursor, 0 at the end, and names that may be locks.
func (l *Locks) Scan(ctx context.Context, as Identity, cursor uint64, count int) (next uint64, keys []string, err error) {
	names, next, err := l.background.client(as).Scan(ctx, cursor, "*"+recordInfix+"???", int64(count)).Result()
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

// Inspect asks about locks in one go, as as, and returns those that are held by LOCK now. What as may not see, and what is no lock,
// is left out; an error is a failure to ask, or a refusal of all.
func (l *Locks) Inspect(ctx context.Context, as Identity, keys []string) ([]LockInfo, error) {
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
		if h, ok := heldInfo(scriptValue(got)); ok {
			h.LockID = LockID{as.DB, keys[i]}
			list = append(list, h)
		}
	}
	if len(list) == 0 && refused != nil {
		return nil, refused
	}
	l.addWaiters(list)
	return list, nil
}

// askBySource asks again by the script's source where an upstream, or the node of a cluster that has the lock, doesn't know its hash.
func (l *Locks) askBySource(ctx context.Context, as Identity, args [][]any, replies []*redis.Cmd) error {
	var places []int
	var again [][]any
	for i, reply := range replies {
		if redis.HasErrorPrefix(reply.Err(), "NOSCRIPT") {
			places, again = append(places, i), append(again, args[i])
		}
	}
	if len(again) == 0 {
		return nil
	}
	answers, err := l.pipeline(ctx, as, again, "EVAL", infoScript.Source)
	for i, place := range places {
		replies[place] = answers[i]
	}
	return err
}

func (l *Locks) pipeline(ctx context.Context, as Identity, argLists [][]any, command, script string) ([]*redis.Cmd, error) {
	pipe := l.background.client(as).Pipeline()
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

// heldInfo reads what info.lua returns; ok is false for a lock that isn't held by LOCK.
func heldInfo(v resp.Value) (h LockInfo, ok bool) {
	if len(v.Elems) != len(infoFields) || string(v.Elems[0].Text) != "held" || string(v.Elems[1].Text) != "lockproxy" {
		return h, false
	}
	ms := func(i int) time.Duration { return time.Duration(v.Elems[i].Int) * time.Millisecond }
	now := ms(6) - ms(7) // the upstream's clock: expires without remaining
	return LockInfo{
		Token: v.Elems[2].Int, Owner: string(v.Elems[3].Text), Client: string(v.Elems[4].Text),
		Age: max(now-ms(5), 0), Remaining: ms(7), Session: v.Elems[8].Int == 1,
	}, true
}

func (l *Locks) addWaiters(list []LockInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		if q := l.queues[LockID{list[i].DB, list[i].Key}]; q != nil {
			list[i].Waiters = q.len()
		}
	}
}

// Force releases a lock as as, if it still has f's token, and hands it on as any release does: an operator takes away what he
// has seen, and not what has been acquired since. It leaves a line in the log.
func (l *Locks) Force(ctx context.Context, as Identity, f ForcedUnlock) (released bool, err error) {
	as.DB = f.DB
	id := LockID{f.DB, f.Key}
	released, err = l.release(operatorConn{l.background.on(ctx, as, f.Key, time.Now().Add(backgroundTimeout))}, id, as, proof{"token", strconv.FormatInt(f.Token, 10)}, true)
	l.audit(f, released, err)
	if err != nil {
		return false, fmt.Errorf("release %s: %w", strings.ToValidUTF8(f.Key, "?"), err)
	}
	return released, nil
}
