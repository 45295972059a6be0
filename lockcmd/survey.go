package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/monotonic"
)

// What an operator sees of the locks, by background clients.

// Snapshot returns locks without asking the upstream: at most limit of those that were taken
// through this proxy and have not been seen to end, with one of each database beyond, and all that
// clients wait for here. Of a lock
// that was taken elsewhere it has only the LockID and the waiters.
func (l *Locks) Snapshot(limit int) []LockInfo {
	index, databases := map[LockID]int{}, map[int]bool{}
	var list []LockInfo
	l.registry.sample(math.MaxInt, func(lock *heldLock) {
		if len(list) >= limit && databases[lock.as.DB] {
			return
		}
		databases[lock.as.DB] = true
		index[lock.id()] = len(list)
		list = append(list, LockInfo{
			LockID: lock.id(), Token: lock.token, Owner: lock.owner, Client: lock.client,
			Age: monotonic.Since(lock.since), Remaining: -monotonic.Since(lock.until.Load()),
			Session: lock.session,
		})
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, q := range l.queues {
		i, ok := index[id]
		if !ok {
			i = len(list)
			list = append(list, LockInfo{LockID: id})
		}
		list[i].setWaiters(q)
	}
	return list
}

// Scan is one step of a SCAN for locks, as an identity. It returns the next cursor, 0 at the end,
// and names that may be locks.
func (l *Locks) Scan(
	ctx context.Context, as Identity, cursor uint64, count int,
) (next uint64, keys []string, err error) {
	const pattern = "*" + recordInfix + "???"
	names, next, err := l.background.client(as).Scan(ctx, cursor, pattern, int64(count)).Result()
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

// Inspect asks the upstream about locks, as an identity, and returns those that are held by LOCK
// now. It leaves out what the user may not see, and what is no lock. It fails if the upstream does,
// or if the user may see none of the locks.
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

// askBySource asks again by the script's source where the upstream, or one node of a cluster, does
// not know its hash.
func (l *Locks) askBySource(
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

func (l *Locks) pipeline(
	ctx context.Context, as Identity, argLists [][]any, command, script string,
) ([]*redis.Cmd, error) {
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

func (l *Locks) addWaiters(list []LockInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		if q := l.queues[LockID{list[i].DB, list[i].Key}]; q != nil {
			list[i].setWaiters(q)
		}
	}
}

// setWaiters says who waits in the lock's queue. Locks.mu is held.
func (h *LockInfo) setWaiters(q *waitQueue) {
	if first := q.first(); first != nil {
		h.Waiters, h.OldestWait = q.len(), time.Since(first.joined)
	}
}

// Force releases a lock as an identity, if it still has f's token: an operator takes away the lock
// that was shown, and not one that was acquired since. The log has it.
func (l *Locks) Force(ctx context.Context, as Identity, f ForcedUnlock) (released bool, err error) {
	as.DB = f.DB
	id := LockID{f.DB, f.Key}
	on := operatorConn{l.background.on(ctx, as, f.Key, time.Now().Add(backgroundTimeout))}
	token := proof{"revoke", strconv.FormatInt(f.Token, 10)}
	released, err = l.release(on, id, as, token, true)
	l.audit(f, released, err)
	if err != nil {
		return false, fmt.Errorf("release %s: %w", strings.ToValidUTF8(f.Key, "?"), err)
	}
	return released, nil
}
