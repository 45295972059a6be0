package top

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/script"
)

// proxySource finds locks by LOCKSCAN and LOCKINFO, as the user of its client. It needs no more
// than any user of the proxy has.
type proxySource struct{ client *redis.Client }

// Snapshot tells nothing: a client only knows what it asks.
func (s proxySource) Snapshot() []lockinfo.Info { return nil }

// Scan is one LOCKSCAN. The client is logged in to one database.
func (s proxySource) Scan(
	ctx context.Context, _ int, cursor uint64, count int,
) (next uint64, keys []string, err error) {
	reply, err := s.client.Do(ctx, "LOCKSCAN", cursor, "COUNT", count, "KIND", "all").Slice()
	if err != nil {
		return 0, nil, explain(err)
	}
	if len(reply) != 2 {
		return 0, nil, errNoLockproxy
	}
	text, _ := reply[0].(string)
	if next, err = strconv.ParseUint(text, 10, 64); err != nil {
		return 0, nil, errNoLockproxy
	}
	list, _ := reply[1].([]any)
	for _, key := range list {
		if key, ok := key.(string); ok {
			keys = append(keys, key)
		}
	}
	return next, keys, nil
}

// Inspect is a LOCKINFO for each key, in one go.
func (s proxySource) Inspect(
	ctx context.Context, db int, keys []string,
) ([]lockinfo.Info, error) {
	pipe := s.client.Pipeline()
	replies := make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		replies[i] = pipe.Do(ctx, "LOCKINFO", key)
	}
	var said redis.Error
	if _, err := pipe.Exec(ctx); err != nil && !errors.As(err, &said) {
		return nil, err
	}
	var list []lockinfo.Info
	for i, reply := range replies {
		fields, err := reply.Slice()
		if err != nil {
			continue // released since, or not this user's to see
		}
		if h, ok := asHeld(fields); ok {
			h.Lock = names.Lock{DB: db, Key: keys[i]}
			list = append(list, h)
		}
	}
	return list, nil
}

// fields reads a map of a reply: its texts, and its numbers.
func fields(list []any) (text map[string]string, number map[string]int64) {
	text, number = map[string]string{}, map[string]int64{}
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		switch value := list[i+1].(type) {
		case string:
			text[name] = value
		case int64:
			number[name] = value
		}
	}
	return text, number
}

// asHeld reads what LOCKINFO answers; ok is false for a lock that isn't held.
func asHeld(list []any) (h lockinfo.Info, ok bool) {
	text, number := fields(list)
	now := number["expires_ms"] - number["remaining_ms"] // by the upstream's clock
	h = lockinfo.Info{
		Kind: text["kind"], Token: number["token"], Owner: text["owner"], Client: text["client"],
		Name: text["name"], Note: text["note"],
		Age:       script.FromMS(max(now-number["acquired_ms"], 0)),
		Remaining: script.FromMS(number["remaining_ms"]),
		Session:   number["session"] == 1, Waiters: int(number["waiters"]),
		Elsewhere: int(number["waiters_elsewhere"]),
		Mode:      text["mode"], Holders: int(number["holders"]),
		Library: text["library"], Refused: int(number["refused"]),
	}
	if number["acquired_ms"] == 0 {
		h.Age = lockinfo.UnknownAge
	}
	addTrying(&h, list, now)
	return h, text["state"] == "held"
}

// addTrying counts foreign clients that keep trying as waiters, as the live page does.
func addTrying(h *lockinfo.Info, list []any, now int64) {
	for i := 0; i+1 < len(list); i += 2 {
		trying, _ := list[i+1].([]any)
		for _, one := range trying {
			if one, ok := one.([]any); ok && list[i] == "trying" {
				_, number := fields(one)
				h.Waiters++
				h.OldestWait = max(h.OldestWait, script.FromMS(now-number["since_ms"]))
			}
		}
	}
}

var errNoLockproxy = errors.New("no lockproxy answers there: --url names the lockproxy, not the " +
	"Redis behind it")

func explain(err error) error {
	if strings.HasPrefix(err.Error(), "ERR unknown command") {
		return errNoLockproxy
	}
	return err
}

// numbers are what INFO lockproxy tells; empty for a user who may not ask.
func (s proxySource) numbers(ctx context.Context) map[string]string {
	text, err := s.client.Info(ctx, "lockproxy").Result()
	if err != nil {
		return nil
	}
	numbers := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			numbers[name] = value
		}
	}
	return numbers
}
