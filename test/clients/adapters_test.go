//go:build clients

package clients_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// adapterPrograms use the files of examples/adapters with the libraries that they adapt.
var adapterPrograms = []clientProgram{
	{name: "redis-py", run: []string{"/usr/bin/python3", "redis_py.py"}},
	{name: "django-redis", run: []string{"/usr/bin/python3", "django_cache.py"}},
	{name: "symfony", run: []string{"/usr/bin/php", "symfony.php"}},
	{name: "laravel", run: []string{"/usr/bin/php", "laravel.php"},
		protocols: []string{"phpredis", "predis"}},
}

func TestAdapters(t *testing.T) {
	t.Parallel()
	bin := proxytest.Binary(t)
	for _, c := range adapterPrograms {
		c.dir = "adapters"
		variants := c.protocols
		if variants == nil {
			variants = []string{""}
		}
		for _, variant := range variants {
			t.Run(c.name+"/"+variant, func(t *testing.T) {
				t.Parallel() // they mostly wait
				port := strconv.Itoa(testredis.FreePort(t))
				startForClients(t, port, bin, "--listen", "127.0.0.1:"+port, "--upstream",
					testredis.Start(t).URL())
				args := []string{"127.0.0.1", port, variant}
				if variant == "" {
					args = args[:2]
				}
				words := slices.Concat(c.run, args)
				if printed := c.command(t, "", words); printed != "ok\n" {
					t.Errorf("it prints:\n%s", printed)
				}
				c.testKilled(t, "", "127.0.0.1:"+port, append(args, "hold", "adapter:killed"))
			})
		}
	}
}

// testKilled kills a program while it holds a lock for ten minutes. The lock outlives its holder,
// until that time ends it.
func (c clientProgram) testKilled(t *testing.T, out, addr string, args []string) {
	t.Helper()
	holder := c.start(t, out, args)
	holder.saysHeld(t)
	rdb, key := proxytest.GoRedis(t, addr), args[len(args)-1]
	if err := rdb.Do(t.Context(), "LOCK", key, 600).Err(); err != redis.Nil {
		t.Fatalf("LOCK while it is held: %v", err)
	}
	holder.Process.Kill()
	if err := rdb.Do(t.Context(), "LOCK", key, 600).Err(); err != redis.Nil {
		t.Errorf("LOCK when the holder has been killed: %v", err)
	}
	if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 5*time.Minute || ttl > 10*time.Minute {
		t.Errorf("the lock lives for %v", ttl)
	}
	if !rdb.PExpire(t.Context(), key, time.Millisecond).Val() {
		t.Error("PEXPIRE finds no key")
	}
	token, err := rdb.Do(t.Context(), "LOCK", key, 600, "WAIT", 0).Int64()
	if err != nil {
		t.Fatalf("LOCK after the holder was killed: %v", err)
	}
	if err := rdb.Do(t.Context(), "UNLOCK", key, token).Err(); err != nil {
		t.Error(err)
	}
}
