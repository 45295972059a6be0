//go:build clients

package clients_test

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// testReplaced has a program wait for two locks, forever for one of them, while the proxy hands over
// to another process, is ended and started again, and is killed and started again. It asks each time
// for the rest of its wait, and is given the locks in the end.
func (c clientProgram) testReplaced(t *testing.T, out string) {
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	args := []string{"--upstream", testredis.Start(t).URL(), "--handover",
		filepath.Join(t.TempDir(), "handover.sock")}
	proxy := proxytest.StartProcessAt(t, addr, args...)
	taken := proxytest.Dial(t, addr)
	host, port, _ := net.SplitHostPort(addr)
	type lock struct {
		key    string
		token  int64
		waiter *holder
		rest   int64 // of the wait, ms
	}
	var locks []*lock
	for _, seconds := range []int64{0, 36_000} {
		l := &lock{key: fmt.Sprint("helper:replaced:", seconds), rest: seconds * 1000}
		l.token = taken.Lock(l.key + " 36000")
		l.waiter = c.start(t, out, slices.Concat([]string{host, port}, c.protocols,
			[]string{"wait", l.key, fmt.Sprint(seconds)}))
		locks = append(locks, l)
	}
	taken.Close() // a proxy that ends gives time to who holds a lock
	waiting := func(proxy string) {
		t.Helper()
		for _, l := range locks {
			wait := int64(-1)
			testwait.Until(t, "a program waits for "+l.key+" behind the proxy "+proxy, func() bool {
				wait = waitFor(t, addr, l.key)
				return wait >= 0
			})
			if wait > l.rest || (wait == 0) != (l.rest == 0) {
				t.Errorf("behind the proxy %s it waits for %d ms, not %d", proxy, wait, l.rest)
			}
			l.rest = max(wait-1, 0)
		}
	}
	waiting("of the beginning")

	old := proxy
	proxy = proxytest.StartProcessAt(t, addr, args...)
	old.Ends(t)
	waiting("that has taken over")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		proxy.Cmd.Process.Signal(sig)
		proxy.Ends(t)
		proxy = proxytest.StartProcessAt(t, addr, args...)
		waiting("after one that got the signal " + sig.String())
	}
	for _, l := range locks {
		proxytest.Dial(t, addr).Expect(fmt.Sprintf("UNLOCK %s %d", l.key, l.token), ":1\r\n")
		l.waiter.saysHeld(t)
	}
}

// waitFor is for how long a client of this proxy waits for a lock, in ms; 0 is forever, and -1 says
// that none waits.
func waitFor(t *testing.T, addr, key string) int64 {
	rdb := redis.NewClient(testredis.Patient(&redis.Options{Addr: addr, Protocol: 2,
		MaxRetries: -1, DisableIdentity: true}))
	defer rdb.Close()
	list, _ := rdb.Do(t.Context(), "LOCKINFO", key, "WAITERS").Slice()
	for _, waiter := range list {
		fields := map[any]any{}
		for pair := range slices.Chunk(waiter.([]any), 2) {
			fields[pair[0]] = pair[1]
		}
		if _, elsewhere := fields["proxy"]; !elsewhere {
			since, _ := fields["since_ms"].(int64)
			until, _ := fields["until_ms"].(int64)
			return max(until-since, 0)
		}
	}
	return -1
}

// testNoLockproxy: a program that connects to a Redis without lockproxy says so. Without anything
// there its wait ends with an error, which says nothing of other clients.
func (c clientProgram) testNoLockproxy(t *testing.T, out string) {
	t.Helper()
	host, port, _ := strings.Cut(testredis.Start(t).Addr(), ":")
	said := c.fails(t, out, host, port, "hold", "helper:plain")
	if !strings.Contains(said, "this is a Redis, not lockproxy: connect to lockproxy's port, 6380 by "+
		"default") {
		t.Errorf("at a Redis it says\n%s", said)
	}
	if c.dir == "node" {
		return // its clients try to connect for ever, so helper.mjs has a step for this
	}
	if said := c.fails(t, out, host, "1", "wait", "helper:nobody", "0.2"); strings.Contains(said,
		"another client") {
		t.Errorf("with nobody there it says\n%s", said)
	}
}

// fails returns what a program prints that ends with an error.
func (c clientProgram) fails(t *testing.T, out, host, port string, args ...string) string {
	t.Helper()
	words := withOut(slices.Concat(c.run, []string{host, port}, c.protocols, args), out)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = filepath.Join("testdata", c.dir)
	stdout, stderr, err := runToEnd(t, cmd)
	if err == nil {
		t.Errorf("%v ends without an error", args)
	}
	return stdout + stderr
}
