//go:build clients

package clients_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// lockPrograms take a lock with a library. Those of Go are built.
var lockPrograms = map[string][]string{
	"redis-py":     {"/usr/bin/python3", "testdata/redis-py/lock.py"},
	"node-redlock": {"node", "testdata/node/redlock.js"},
	"Laravel":      {"/usr/bin/php", "testdata/phpredis/laravel_lock.php"},
	"Symfony":      {"/usr/bin/php", "testdata/phpredis/symfony_lock.php"},
	"redislock":    {"locklibs", "redislock"},
	"redsync":      {"locklibs", "redsync"},
	"rueidislock":  {"locklibs", "rueidislock"},
}

// TestLockLibraries: lock libraries, unmodified, half of whose clients pass through the proxy and
// half do not, next to LOCK … WAIT on the same key: no two holders, everybody is served, and the
// proxy says who has the lock. redlock-rb and Redisson, which neither Debian nor npm nor Go has,
// are in TestLibrariesNextToLOCK, by their commands.
func TestLockLibraries(t *testing.T) {
	bin, programs := proxytest.Binary(t), t.TempDir()
	build := exec.Command("go", "build", "-o", programs+"/", "./locklibs")
	build.Dir = filepath.Join("testdata", "go")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	upstream := strconv.Itoa(testredis.FreePort(t))
	startForClients(t, upstream, "redis-server", "--port", upstream, "--bind", "127.0.0.1",
		"--save", "", "--dir", t.TempDir())
	for _, park := range []string{"0s", "200ms"} {
		proxy := strconv.Itoa(testredis.FreePort(t))
		startForClients(t, proxy, bin, "--listen", "127.0.0.1:"+proxy, "--upstream",
			"redis://127.0.0.1:"+upstream, "--park", park)
		t.Run("park "+park, func(t *testing.T) {
			for library, program := range lockPrograms {
				if program[0] == "locklibs" {
					program = []string{filepath.Join(programs, program[0]), program[1]}
				}
				t.Run(library, func(t *testing.T) {
					t.Parallel()
					direct := proxytest.GoRedis(t, "127.0.0.1:"+upstream)
					if err := direct.Set(t.Context(), "once:"+library+":end", "", 0).Err(); err != nil {
						t.Fatal(err)
					}
					// The server knows the library's scripts from then on, and the proxy does not.
					once := slices.Concat(program[1:], []string{"127.0.0.1", upstream,
						"once:" + library, "once"})
					out, err := exec.Command(program[0], once...).CombinedOutput()
					if err != nil {
						t.Fatalf("%v: %s", err, out)
					}
					lockLibrary(t, program, proxy, upstream, library+":"+park)
				})
			}
		})
	}
}

// lockLibrary runs two clients through the proxy and two directly, next to two waiters, until each
// has had the lock several times, and again, while all others wanted it.
func lockLibrary(t *testing.T, program []string, proxy, upstream, key string) {
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	direct := proxytest.GoRedis(t, "127.0.0.1:"+upstream)
	names := []string{"proxy1", "proxy2", "direct1", "direct2", "wait1", "wait2"}
	for i, name := range names[:4] {
		port := proxy
		if i >= 2 {
			port = upstream
		}
		running.Go(func() { // ends with the test
			args := append(program[1:len(program):len(program)], "127.0.0.1", port, key, name)
			out, err := exec.CommandContext(t.Context(), program[0], args...).CombinedOutput()
			if err != nil {
				t.Errorf("client %s: %v: %s", name, err, out)
			}
		})
	}
	lockKey := key
	if strings.HasPrefix(key, "rueidislock:") {
		lockKey = "job:0:" + key // as rueidislock names it
	}
	for _, name := range names[4:] {
		c := proxytest.GoRedis(t, "127.0.0.1:"+proxy)
		running.Go(func() { // ends with the test
			for ended := int64(0); ended == 0; ended = c.Exists(t.Context(), key+":end").Val() {
				token, err := c.Do(t.Context(), "LOCK", lockKey, 600, "WAIT", 0).Int64()
				if err != nil {
					t.Errorf("LOCK: %v", err)
					return
				}
				inside := c.Incr(t.Context(), key+":inside").Val()
				if left := c.Decr(t.Context(), key+":inside").Val(); inside != 1 || left != 0 {
					c.Incr(t.Context(), key+":violations")
				}
				c.Incr(t.Context(), key+":"+name)
				if n := c.Do(t.Context(), "UNLOCK", lockKey, token).Val(); n != int64(1) {
					t.Errorf("UNLOCK: %v", n)
				}
			}
		})
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		testwait.Until(t, what, func() bool {
			if t.Failed() {
				t.FailNow() // a client has ended
			}
			return ok()
		})
	}
	watcher := proxytest.GoRedis(t, "127.0.0.1:"+proxy)
	until("LOCKINFO names a holder that is a client of the library", func() bool {
		info, _ := watcher.Do(t.Context(), "LOCKINFO", lockKey).Val().(map[any]any)
		return info["kind"] == "other" && info["client"] != nil
	})
	served := func() (counts []int, total int) {
		for _, name := range names {
			n, _ := direct.Get(t.Context(), key+":"+name).Int()
			counts, total = append(counts, n), total+n
		}
		return counts, total
	}
	for times := 1; times <= 20; times++ {
		until(fmt.Sprintf("each of %q has had the lock %d times", names, times), func() bool {
			counts, _ := served()
			return slices.Min(counts) >= times
		})
	}
	for many := 100; many <= 5000; many += 100 {
		until(fmt.Sprintf("%d acquisitions", many), func() bool {
			_, total := served()
			return total >= many
		})
	}
	direct.Set(t.Context(), key+":end", "", 0)
	running.Wait()
	if violations := direct.Get(t.Context(), key+":violations"); violations.Err() != redis.Nil {
		t.Errorf("two had the lock at once %s times", violations.Val())
	}
	counts, _ := served()
	t.Logf("%q have had the lock %d times", names, counts)
}
