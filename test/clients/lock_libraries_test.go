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
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
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
	const lasts = 60 * time.Second
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
					// The server knows the library's scripts from then on, and the proxy does not.
					once := slices.Concat(program[1:], []string{"127.0.0.1", upstream,
						"once:" + library, "0.1"})
					out, err := exec.Command(program[0], once...).CombinedOutput()
					if err != nil {
						t.Fatalf("%v: %s", err, out)
					}
					lockLibrary(t, program, proxy, upstream, library+":"+park, lasts)
				})
			}
		})
	}
}

// lockLibrary runs two clients through the proxy and two directly, next to two waiters.
func lockLibrary(
	t *testing.T, program []string, proxy, upstream, key string, lasts time.Duration,
) {
	var running sync.WaitGroup
	served := make([]string, 6)
	for i := range 4 {
		port := proxy
		if i >= 2 {
			port = upstream
		}
		running.Go(func() {
			args := append(program[1:len(program):len(program)], "127.0.0.1", port, key,
				fmt.Sprint(lasts.Seconds()))
			out, err := exec.CommandContext(t.Context(), program[0], args...).CombinedOutput()
			if served[i] = strings.TrimSpace(string(out)); err != nil {
				t.Errorf("client %d: %v: %s", i, err, out)
			}
		})
	}
	lockKey := key
	if strings.HasPrefix(key, "rueidislock:") {
		lockKey = "job:0:" + key // as rueidislock names it
	}
	for i := range 2 {
		c := redis.NewClient(testredis.Patient(&redis.Options{Addr: "127.0.0.1:" + proxy}))
		t.Cleanup(func() { c.Close() })
		running.Go(func() {
			acquisitions, violations := 0, 0
			for end := time.Now().Add(lasts); time.Now().Before(end); acquisitions++ {
				token, err := c.Do(t.Context(), "LOCK", lockKey, 10, "WAIT", 20).Int64()
				if err != nil {
					t.Errorf("LOCK: %v", err)
					return
				}
				if c.Incr(t.Context(), key+":inside").Val() != 1 {
					violations++
				}
				time.Sleep(2 * time.Millisecond)
				c.Decr(t.Context(), key+":inside")
				if n := c.Do(t.Context(), "UNLOCK", lockKey, token).Val(); n != int64(1) {
					t.Errorf("UNLOCK: %v", n)
				}
			}
			served[4+i] = fmt.Sprint("acquisitions ", acquisitions, " violations ", violations)
		})
	}
	watcher := redis.NewClient(testredis.Patient(&redis.Options{Addr: "127.0.0.1:" + proxy}))
	t.Cleanup(func() { watcher.Close() })
	named := 0 // how often LOCKINFO has named a holder that is a client of the library
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		info, _ := watcher.Do(t.Context(), "LOCKINFO", lockKey).Result()
		if info, ok := info.(map[any]any); ok && info["kind"] == "other" && info["client"] != nil {
			named++
		}
	}
	running.Wait()
	if named == 0 {
		t.Error("LOCKINFO has never named the holder")
	}
	for i, text := range served {
		var acquisitions, violations int
		fmt.Sscanf(text, "acquisitions %d violations %d", &acquisitions, &violations)
		if acquisitions == 0 || violations > 0 {
			t.Errorf("client %d: %q", i, text)
		}
	}
	t.Logf("%d times named; through the proxy %q, directly %q, LOCK WAIT %q", named, served[:2],
		served[2:4], served[4:])
}
