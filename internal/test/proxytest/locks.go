package proxytest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// AwaitWaiters waits until n clients wait for a lock at p, or one of those whose time is short has
// been answered already.
func AwaitWaiters(t *testing.T, p *Proxy, key string, n int, short ...*Conn) {
	t.Helper()
	c := GoRedis(t, p.Addr)
	defer c.Close()
	testwait.Until(t, "they wait", func() bool {
		return waiters(c, key) == n || slices.ContainsFunc(short, (*Conn).Arrived)
	})
}

// AwaitListed waits until a proxy can learn from the upstream that clients wait at another.
func AwaitListed(t *testing.T, c *Conn, lock string) {
	t.Helper()
	testwait.Until(t, "the waiter is known", func() bool {
		return strings.Contains(c.Do("LOCKINFO "+lock+" WAITERS"), "proxy")
	})
}

// AsMaps reads an array of maps.
func AsMaps(t *testing.T, reply any, err error) (list []map[string]any) {
	t.Helper()
	elems, ok := reply.([]any)
	if err != nil || !ok {
		t.Fatalf("%v, %v", reply, err)
	}
	for _, e := range elems {
		m := map[string]any{}
		for k, v := range e.(map[any]any) {
			m[k.(string)] = v
		}
		list = append(list, m)
	}
	return list
}

// Token is the token in a LOCK's reply.
func Token(t *testing.T, reply string) int64 {
	t.Helper()
	token, err := strconv.ParseInt(strings.Trim(reply, ":\r\n"), 10, 64)
	if err != nil {
		t.Fatalf("%q is no token", reply)
	}
	return token
}

// ReplicaTimeout is short, since tests wait for it.
const ReplicaTimeout = 300 * time.Millisecond

// WithReplicas is what --min-replicas n sets, for what replicas do not acknowledge. Otherwise a
// replica that stops with the machine fails the test: see WithSlowReplicas.
func WithReplicas(n int) func(*proxy.Config) {
	return func(cfg *proxy.Config) {
		cfg.Locks.Durability = lockcmd.Durability{MinReplicas: n, ReplicaTimeout: ReplicaTimeout}
	}
}

// WithSlowReplicas is WithReplicas with a --replica-timeout that no stop of the machine ends.
func WithSlowReplicas(n int) func(*proxy.Config) {
	return func(cfg *proxy.Config) {
		cfg.Locks.Durability = lockcmd.Durability{MinReplicas: n, ReplicaTimeout: 5 * time.Minute}
	}
}

// WithFsync is what --require-fsync sets, with --min-replicas n and --replica-timeout.
func WithFsync(n int, within time.Duration) func(*proxy.Config) {
	return func(cfg *proxy.Config) {
		cfg.Locks.Durability = lockcmd.Durability{MinReplicas: n, RequireFsync: true,
			ReplicaTimeout: within}
	}
}

// Waiters is how many wait for a lock, as LOCKINFO at p says.
func Waiters(t testing.TB, p *Proxy, key string) int {
	return waiters(GoRedis(t, p.Addr), key)
}

func waiters(c *redis.Client, key string) int {
	info, err := c.Do(Ctx, "LOCKINFO", key).Result()
	if err != nil {
		return 0
	}
	for k, v := range info.(map[any]any) {
		if k == "waiters" {
			return int(v.(int64))
		}
	}
	return 0
}
