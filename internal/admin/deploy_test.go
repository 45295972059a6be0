package admin_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/testwait"
)

const (
	dashboardFile = "../../deploy/grafana/lockproxy.json"
	alertsFile    = "../../deploy/alerts/lockproxy.yml"
	metricsPage   = "../../docs/observability.md"
)

// expression is one of the dashboard's or the alerts', and where it stands.
type expression struct{ where, text string }

func dashboardExpressions(t testing.TB) (list []expression) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			list = append(list, expression{panel.Title, target.Expr})
		}
	}
	return list
}

var alertLine = regexp.MustCompile(`(?m)alert: (\w+)\n +expr: (.*)$`)

func alertExpressions(t testing.TB) (list []expression) {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range alertLine.FindAllStringSubmatch(string(text), -1) {
		list = append(list, expression{m[1], m[2]})
	}
	return list
}

var metricInText = regexp.MustCompile(`\b(?:lockproxy|process|go)_[a-z0-9_]+\b`)

// smallLoad does something of everything that is counted.
func smallLoad(s *site) {
	s.t.Helper()
	c := s.client()
	for i := range 200 {
		c.Set(ctx, "k", i, 0)
	}
	c.Do(ctx, "COMMAND", "COUNT")
	for range 3 {
		token := s.lock(c, "a", 300, "OWNER", "me")
		s.lock(c, "a", 300, "OWNER", "me")
		c.Do(ctx, "LOCK", "a", 300)
		c.Do(ctx, "FENCE", "a", token+1, "SET", "x", 1)
		waiter := make(chan struct{})
		go func() {
			defer close(waiter)
			s.waiter().Do(ctx, "LOCK", "a", 300, "WAIT", 300)
		}()
		testwait.Until(s.t, "a waiter",
			func() bool { return s.proxy.Stats().Locks.Waiters == 1 })
		c.Do(ctx, "RELOCK", "a", token, 300)
		c.Do(ctx, "LOCKINFO", "a")
		c.Do(ctx, "LOCKSCAN", 0)
		c.Do(ctx, "UNLOCK", "a", token)
		testwait.For(s.t, "the waiter's lock", waiter)
		c.Do(ctx, "UNLOCK", "a", "FORCE")
	}
}

var metricInTable = regexp.MustCompile("(?m)^\\| `(lockproxy_[a-z_]+)` \\| ([a-z]+)")

// The metrics that docs name are those of a proxy at work, with their types, and each metric says what
// it means.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	s := startSite(t, remembering)
	smallLoad(s)
	_, text := s.get("/metrics")
	types := map[string]string{}
	typed := regexp.MustCompile(`(?m)^# HELP (lockproxy_\S+) .{10,}\n# TYPE (\S+) (\S+)$`)
	for _, m := range typed.FindAllStringSubmatch(text, -1) {
		types[m[1]] = m[3]
	}
	if all := strings.Count(text, "# TYPE lockproxy_"); len(types) != all {
		t.Errorf("%d of %d metrics say what they mean", len(types), all)
	}
	documented := metricInTable.FindAllStringSubmatch(string(page), -1)
	if len(documented) < 10 {
		t.Errorf("%s has only %d metrics", metricsPage, len(documented))
	}
	for _, m := range documented {
		if types[m[1]] != m[2] {
			t.Errorf("%s calls %s a %s, and it is a %q", metricsPage, m[1], m[2], types[m[1]])
		}
	}
}

// Every metric that the dashboard and the alerts use is one that a proxy at work really has.
func TestDashboardAndAlertsNameRealMetrics(t *testing.T) {
	s := startSite(t, remembering)
	smallLoad(s)
	var names []string
	for name := range s.scrape() {
		base, _, _ := strings.Cut(name, "{")
		names = append(names, base)
	}
	dashboard, alerts := dashboardExpressions(t), alertExpressions(t)
	if len(dashboard) < 30 || len(alerts) < 10 {
		t.Fatalf("found only %d and %d expressions", len(dashboard), len(alerts))
	}
	used := map[string]bool{}
	for _, e := range append(dashboard, alerts...) {
		metrics := metricInText.FindAllString(e.text, -1)
		if len(metrics) == 0 && !strings.HasPrefix(e.text, "up{") {
			t.Errorf("%s uses no metric: %s", e.where, e.text)
		}
		for _, metric := range metrics {
			used[metric] = true
			if !slices.Contains(names, metric) {
				t.Errorf("%s uses %s, which a proxy doesn't have", e.where, metric)
			}
		}
	}
	for _, name := range names { // and none is left out, but those that are for looking closer
		if strings.HasPrefix(name, "lockproxy_") && !used[name] &&
			!strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") &&
			name != "lockproxy_build_info" && name != "lockproxy_draining" {
			t.Errorf("neither dashboard nor alerts use %s", name)
		}
	}
}
