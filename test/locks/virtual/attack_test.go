//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A release by FORCE names a waiter that has meanwhile taken the expired lock by itself: the waiter
// does not get what FORCE gives it.
func TestAttackForceAfterExpiry(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, relay, p := attackBoth(t)
		holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		holder.Lock("job 1")
		next.Send("LOCK job 30 WAIT 5")
		proxytest.AwaitWaiters(t, p, "job", 1)
		rule, release := relay.hold(t, true, "force ")
		other.Send("UNLOCK job FORCE")
		<-rule.met
		token := proxytest.Token(t, next.Reply())
		release()
		if got := other.Reply(); got != ":1\r\n" {
			t.Errorf("FORCE: %q", got)
		}
		next.Expect(proxytest.Unlock("job", token), ":0\r\n") // forced
		other.Lock("job 30 WAIT 1")
	})
}

// During the grace period a lock's key can be missing, or of another type.
func TestAttackOtherTypeInGracePeriod(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		c := proxytest.Dial(t, p.Addr)
		direct.Set(proxytest.Ctx, "job", "1000000000", 0)
		token := c.Lock("job 30 OWNER me")
		for _, command := range []string{fmt.Sprintf("RELOCK job %d 30", token),
			"LOCK job 60 OWNER me"} {
			// at once: the proxy checks the key
			direct.TxPipelined(proxytest.Ctx, func(tx redis.Pipeliner) error {
				tx.Del(proxytest.Ctx, "job")
				tx.RPush(proxytest.Ctx, "job", "x")
				return nil
			})
			c.Expect(command, "-WRONGTYPE …")
			if kind := direct.Type(proxytest.Ctx, "job").Val(); kind != "list" {
				t.Fatalf("%s made a %s of it", command, kind)
			}
		}
	})
}

// Odd owners come back as they were sent.
func TestAttackOwnerNames(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.GoRedis(t, p.Addr)
		for i, owner := range []string{"\n", " ", "\x00", "a\nb\n", "%s", "v1 1 2 3", "\r\n",
			strings.Repeat("x", 100000), "\xff\xfe", "-"} {
			key := fmt.Sprint("job", i)
			token, err := c.Do(proxytest.Ctx, "LOCK", key, 30, "OWNER", owner).Int64()
			if err != nil {
				t.Fatal(err)
			}
			again, err := c.Do(proxytest.Ctx, "LOCK", key, 30, "OWNER", owner).Int64()
			if err != nil || again != token {
				t.Errorf("%q: %d, %v; want %d", owner, again, err, token)
			}
			if got := c.Do(proxytest.Ctx, "LOCK", key, 30, "OWNER", owner+"\n").Err(); got == nil {
				t.Errorf("%q with a newline is another owner", owner)
			}
			info, _ := c.Do(proxytest.Ctx, "LOCKINFO", key).Result()
			if got := info.(map[any]any)["owner"]; got != owner {
				t.Errorf("got %q, want %q", got, owner)
			}
		}
	})
}
