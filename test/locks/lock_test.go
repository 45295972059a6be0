package locks_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

func TestEvictionIsWarnedOf(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]bool{"noeviction": false, "volatile-lru": true} {
		server := testredis.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", policy)
		p := proxytest.StartProcess(t, "--upstream", server.URL())
		time.Sleep(300 * time.Millisecond)
		p.Cmd.Process.Kill()
		p.Ends(t)
		if got := strings.Contains(p.Log.String(), "may evict locks"); got != want {
			t.Errorf("%s: the log says\n%s", policy, p.Log.String())
		}
	}
}
