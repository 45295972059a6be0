package lockcmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/script"
)

// Questions of operators run on background clients.

// Scan is one step of a SCAN for locks, as an identity. It returns the next cursor, 0 at the end,
// and names that may be locks.
func (l *queries) Scan(
	ctx context.Context, as names.Identity, cursor uint64, count int,
) (next uint64, keys []string, err error) {
	names, next, err := l.Clients.Client(as).Scan(ctx, cursor, keyname.RecordPattern, int64(count)).Result()
	if err != nil {
		return 0, nil, err
	}
	for _, name := range names {
		if key, ok := keyname.LockOf(name); ok {
			keys = append(keys, key)
		}
	}
	return next, keys, nil
}

// Inspect asks the upstream about locks, as an identity, and returns those that are held now. It
// leaves out keys that the user may not see or that are no locks. It fails if the upstream does, or
// if the user may see none of the locks.
func (l *queries) Inspect(
	ctx context.Context, as names.Identity, keys []string,
) ([]lockinfo.Info, error) {
	loopguard.MayWait()
	if len(keys) == 0 {
		return nil, nil
	}
	// One client for all of them, also in a cluster: it sends the questions together.
	on := l.Clients.On(ctx, as, "", time.Now().Add(l.Clients.Patience()))
	found, failed := make([]resp.Value, len(keys)), make([]error, len(keys))
	var asking sync.WaitGroup
	for i, key := range keys {
		asking.Go(func() { found[i], failed[i] = l.Ask(on, script.InfoScript, key) }) // ends within 2 s
	}
	asking.Wait()
	var list []lockinfo.Info
	var refused error
	for i, v := range found {
		said, isReply := failed[i].(script.ServerError)
		_, relayed := failed[i].(script.RelayedError)
		switch {
		case failed[i] == nil:
		case isReply && script.HasCode(said, "WRONGTYPE"):
			continue
		case isReply || relayed:
			refused = failed[i]
			continue
		default:
			return nil, failed[i]
		}
		if h, seen, held := l.shown(names.Lock{DB: as.DB, Key: keys[i]}, v); held {
			h.AddSeen(seen)
			list = append(list, h)
		}
	}
	if len(list) == 0 && refused != nil {
		return nil, refused
	}
	for i := range list {
		addLine(&list[i], l.queues.Of(list[i].Lock).Line())
	}
	return list, nil
}

// Proxies asks the upstream, as an identity, through which proxy a lock was taken ("" if that is
// not known), and which other proxies have clients that wait for it. A proxy is named by its ID.
func (l *queries) Proxies(
	ctx context.Context, as names.Identity, key string,
) (holder string, waiting []string, err error) {
	on := l.Clients.On(ctx, as, key, time.Now().Add(l.Clients.Patience()))
	v, err := l.Ask(on, script.InfoScript, key, "waiters")
	switch {
	case err != nil:
		return "", nil, err
	case len(v.Elems) != 3:
		return "", nil, script.Unexpected(script.InfoScript, v)
	}
	for _, p := range lockinfo.ReadProxies(v.Elems, l.Scripts.Proxy) {
		waiting = append(waiting, p.Name)
	}
	connection := string(v.Elems[2].Text)
	holder = connection[:max(strings.LastIndex(connection, "-"), 0)]
	return holder, waiting, nil
}

// Force releases a lock as an identity, if it still has f's token: an operator ends the lock that
// was shown, not one that was acquired since. It writes a line to the log.
func (l *queries) Force(
	ctx context.Context, as names.Identity, f ForcedUnlock,
) (released bool, err error) {
	as.DB = f.DB
	id := names.Lock{DB: f.DB, Key: f.Key}
	on := l.Clients.On(ctx, as, f.Key, time.Now().Add(l.Clients.Patience()))
	token := script.Proof{Kind: "revoke", Value: strconv.FormatInt(f.Token, 10)}
	released, err = l.releases.release(on, id, as, token, true)
	l.seen.audit(f, released, err)
	if err != nil {
		return false, fmt.Errorf("release %s: %w", strings.ToValidUTF8(f.Key, "?"), err)
	}
	return released, nil
}
