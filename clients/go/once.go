package lockproxy

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// OnceOptions of a value. The claim to make it is a lock.
type OnceOptions struct {
	TTL     time.Duration // how long the value is stored; 0 is until it is deleted
	Early   time.Duration // so long before it expires one client makes it again; others get it
	Wait    time.Duration // for a value that another client makes: at most; 0 is forever
	Timeout time.Duration // how long a crashed proxy can leave the claim behind; 0 is 10 s
	Max     time.Duration // how long the claim is held at most; 0 is forever
	Owner   string        // who makes it, for people; "" is this program, its host and its process
}

// Claim is the right to make a value.
type Claim struct {
	Key   string
	Token int64 // rises with every claim of the key: it fences other databases too
}

// Once returns the value of key. If there is none, one client makes it, and all who ask meanwhile
// are given it; at the end of the wait their error is ErrNotAcquired. If work fails, its claim is
// given up and the error passed on. The context of work is cancelled with the cause ErrLost as soon
// as the claim is lost; then nothing is stored, and Once returns ErrLost.
//
//	body, err := lockproxy.Once(ctx, rdb, "report:7", lockproxy.OnceOptions{
//		TTL: 5 * time.Minute, Wait: 20 * time.Second,
//	}, func(ctx context.Context, _ lockproxy.Claim) (string, error) { return build(ctx, 7) })
func Once(ctx context.Context, rdb *redis.Client, key string, o OnceOptions,
	work func(context.Context, Claim) (string, error)) (string, error) {
	return once(ctx, rdb, key, o, true, work)
}

// TryOnce is Once without the wait: the error is ErrNotAcquired at once if another client makes it.
func TryOnce(ctx context.Context, rdb *redis.Client, key string, o OnceOptions,
	work func(context.Context, Claim) (string, error)) (string, error) {
	return once(ctx, rdb, key, o, false, work)
}

func once(ctx context.Context, rdb *redis.Client, key string, o OnceOptions, waits bool,
	work func(context.Context, Claim) (string, error)) (value string, err error) {
	value, there, err := present(ctx, rdb, key, o.Early)
	if there || err != nil {
		return value, err
	}
	var early []string
	if o.Early > 0 {
		early = []string{"EARLY", seconds(o.Early)}
	}
	r := Options{Timeout: o.Timeout, Wait: o.Wait, Max: o.Max, Owner: o.Owner}.request(waits)
	s, reply, err := ask(ctx, rdb, r, "ONCE", key, early...)
	if err != nil {
		return "", err
	}
	defer s.close() // which also gives up the claim
	if value, there = strings.CutPrefix(reply, "="); there {
		return value, nil
	}
	token, err := strconv.ParseInt(strings.TrimPrefix(reply, ":"), 10, 64)
	if err != nil {
		return "", err
	}
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := context.AfterFunc(s.ended, func() { cancel(ErrLost) })
	if value, err = work(working, Claim{key, token}); err != nil {
		if !lost() {
			return "", errors.Join(ErrLost, err)
		}
		s.end("DONE", key, token) // gives up
		return "", err
	}
	more := []string{value}
	if o.TTL != 0 {
		more = append(more, "PX", strconv.FormatInt(o.TTL.Milliseconds(), 10))
	}
	stored := ""
	if lost() {
		stored = s.end("DONE", key, token, more...)
	}
	switch {
	case stored == ":1":
		return value, nil
	case strings.HasPrefix(stored, "-"):
		return "", replyError(stored[1:])
	}
	return "", ErrLost
}

// present returns the value if it is there and need not be made again.
func present(ctx context.Context, rdb *redis.Client, key string, early time.Duration) (
	value string, there bool, err error) {
	pipe := rdb.Pipeline()
	get, lives := pipe.Get(ctx, key), (*redis.DurationCmd)(nil)
	if early > 0 {
		lives = pipe.PTTL(ctx, key)
	}
	_, err = pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	soonGone := err == nil && lives != nil && lives.Val() >= 0 && lives.Val() < early
	return get.Val(), err == nil && !soonGone, err
}
