package proxy

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/upstream"
)

// What the user in --upstream lacks is said once, and again when it has changed.
func TestRightsAreSaidWhenTheyChange(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	named, err := upstream.Parse("redis://app:pw@" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	s := New(Config{Upstream: named, Logger: hclog.New(&hclog.LoggerOptions{Output: log})})
	defer s.Close()
	watch := rightsWatch{server: s}
	for i, step := range []struct {
		rules string
		want  string // in the only line; "" is no line
	}{
		{"on >pw ~* &* +@all", ""},
		{"-scan", `[INFO]  some lock commands fail, or are slower, unless clients log in as ` +
			`another user; lockproxy check says more: missing="user app lacks +scan, for LOCKSCAN"`},
		{"", ""},
		{"-evalsha", `[WARN]  lock commands are answered with errors, unless clients log in as ` +
			`another user; lockproxy check says more: missing="user app lacks +evalsha, for LOCK, ` +
			`UNLOCK, RELOCK, LOCKINFO; user app lacks +scan, for LOCKSCAN"`},
		{"", ""},
		{"+@all", "[INFO]  the lock commands have everything that they need again"},
		{"", ""},
		{"-evalsha", "[WARN]  lock commands are answered with errors"},
	} {
		server.Ask(append([]string{"ACL", "SETUSER", "app"}, strings.Fields(step.rules)...)...)
		log.Reset()
		watch.look(t.Context(), false) // it has been restarted, say
		watch.look(t.Context(), true)
		watch.look(t.Context(), true)
		lines := strings.Count(log.String(), "\n")
		if !strings.Contains(log.String(), step.want) || (lines > 0) != (step.want != "") || lines > 1 {
			t.Errorf("step %d: %q, want %q", i, log.String(), step.want)
		}
	}
}
