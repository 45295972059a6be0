package lockproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	lockproxy "lockproxy/clients/go"
	"lockproxy/internal/test/testwait"
)

type onceOptions = lockproxy.OnceOptions

func is(value string) func(context.Context, lockproxy.Claim) (string, error) {
	return func(context.Context, lockproxy.Claim) (string, error) { return value, nil }
}

// claimOf is the name of the claim of a value that is being made.
func claimOf(t *testing.T, rdb *redis.Client, key string) string {
	t.Helper()
	claims, err := rdb.Do(t.Context(), "LOCKSCAN", 0, "MATCH", key+":once:*", "COUNT", 1000).Slice()
	if err != nil || len(claims[1].([]any)) != 1 {
		t.Fatalf("claims of %s: %v, %v", key, claims, err)
	}
	return claims[1].([]any)[0].(string)
}

// One makes the value while the others wait; all have it.
func TestOnce(t *testing.T) {
	t.Parallel()
	rdb, ctx := connect(t), t.Context()
	wait := onceOptions{TTL: 5 * time.Minute, Wait: lockproxy.WaitForever}
	others := make(chan string, 2)
	value, err := lockproxy.Once(ctx, rdb, "a", wait,
		func(context.Context, lockproxy.Claim) (string, error) {
			for range cap(others) {
				go func() { // ends when it has the value
					value, _ := lockproxy.Once(ctx, rdb, "a", wait, is("another"))
					others <- value
				}()
			}
			testwait.Until(t, "both wait", func() bool {
				info, _ := rdb.Do(ctx, "LOCKINFO", claimOf(t, rdb, "a")).Result()
				facts, _ := info.(map[any]any)
				return facts["waiters"] == int64(2)
			})
			_, err := lockproxy.Once(ctx, rdb, "a", onceOptions{}, is("another"))
			if err != lockproxy.ErrNotAcquired {
				t.Errorf("without a wait: %v", err)
			}
			return "value\r\n", nil
		})
	if err != nil || value != "value\r\n" {
		t.Errorf("the maker has %q, %v", value, err)
	}
	for range cap(others) {
		if value := testwait.For(t, "a value", others); value != "value\r\n" {
			t.Errorf("another has %q", value)
		}
	}
	value, err = lockproxy.Once(ctx, rdb, "a", onceOptions{}, is("another"))
	if err != nil || value != "value\r\n" {
		t.Errorf("later %q, %v", value, err)
	}
	if lives := rdb.TTL(ctx, "a").Val(); lives > 5*time.Minute || lives < 3*time.Minute {
		t.Errorf("it lives for %v", lives)
	}
}

// An early refresh gives all others the present value.
func TestOnceEarly(t *testing.T) {
	t.Parallel()
	rdb, ctx := connect(t), t.Context()
	rdb.Set(ctx, "a", "old", 5*time.Minute)
	soon := onceOptions{Early: 10 * time.Minute}
	for _, o := range []onceOptions{{}, {Early: time.Minute}} {
		if value, err := lockproxy.Once(ctx, rdb, "a", o, is("new")); value != "old" {
			t.Errorf("%v: %q, %v", o, value, err)
		}
	}
	value, err := lockproxy.Once(ctx, rdb, "a", soon,
		func(context.Context, lockproxy.Claim) (string, error) {
			if value, err := lockproxy.Once(ctx, rdb, "a", soon, is("newer")); value != "old" {
				t.Errorf("while it is made: %q, %v", value, err)
			}
			return "new", nil
		})
	if got := rdb.Get(ctx, "a").Val(); err != nil || value != "new" || got != "new" {
		t.Errorf("%q, stored %q, %v", value, got, err)
	}
}

// What keeps the value from being made or stored is the error, and the claim is given up.
func TestOnceFails(t *testing.T) {
	t.Parallel()
	rdb, ctx, mine := connect(t), t.Context(), errors.New("mine")
	_, err := lockproxy.Once(ctx, rdb, "a", onceOptions{},
		func(context.Context, lockproxy.Claim) (string, error) { return "value", mine })
	if err != mine || rdb.Exists(ctx, "a").Val() != 0 {
		t.Errorf("after an error of work: %v", err)
	}
	_, err = lockproxy.Once(ctx, rdb, "a", onceOptions{Timeout: time.Hour},
		func(ctx context.Context, c lockproxy.Claim) (string, error) {
			rdb.Do(ctx, "UNLOCK", claimOf(t, rdb, c.Key), "FORCE")
			<-ctx.Done()
			return "late", nil
		})
	if err != lockproxy.ErrLost || rdb.Exists(ctx, "a").Val() != 0 {
		t.Errorf("after the loss of the claim: %v", err)
	}
	var refused redis.Error
	_, err = lockproxy.Once(ctx, rdb, "a", onceOptions{TTL: time.Microsecond}, is("value"))
	if !errors.As(err, &refused) {
		t.Errorf("DONE for no time: %v", err)
	}
	wait := onceOptions{Wait: lockproxy.WaitForever} // the end of a connection gives up its claim
	if value, err := lockproxy.Once(ctx, rdb, "a", wait, is("")); value != "" || err != nil {
		t.Errorf("nothing: %q, %v", value, err)
	}
	if value, err := lockproxy.Once(ctx, rdb, "a", onceOptions{}, is("more")); value != "" {
		t.Errorf("nothing that is there: %q, %v", value, err)
	}
	rdb.LPush(ctx, "list", 1)
	_, err = lockproxy.Once(ctx, rdb, "list", onceOptions{}, is("value"))
	if !errors.As(err, &refused) {
		t.Errorf("a list: %v", err)
	}
}
