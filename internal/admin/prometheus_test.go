//go:build admin

package admin_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// The alerts are well-formed, and fire when they should: see the file of their tests.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "lockproxy.yml"},
		{"test", "rules", "lockproxy.test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = filepath.Dir(alertsFile)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests, err := os.ReadFile(strings.TrimSuffix(alertsFile, ".yml") + ".test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alertExpressions(t) {
		fires, silent := false, false
		for _, test := range strings.Split(string(tests), "alertname: "+alert.where)[1:] {
			if name := test[:1]; name != "," && name != "\n" { // of an alert with a longer name
				continue
			}
			_, expected, _ := strings.Cut(test, "exp_alerts:")
			none := strings.HasPrefix(strings.TrimSpace(expected), "[]")
			silent, fires = silent || none, fires || !none
		}
		if !fires || !silent {
			t.Errorf("%s: a test of when it fires: %v, and of when it doesn't: %v", alert.where,
				fires, silent)
		}
	}
}

// Prometheus's own linter finds nothing in names, types and help texts.
func TestPrometheusNaming(t *testing.T) {
	t.Parallel()
	s := startSite(t, remembering)
	smallLoad(s)
	_, text := s.get("/metrics")
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// A real Prometheus scrapes a proxy at work, accepts the alerts, and answers every expression of
// the dashboard.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	s := startSite(t, remembering)
	dir, port := t.TempDir(), testredis.FreePort(t)
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: "+
		"500ms}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: lockproxy, static_configs: [{targets: [%q]}]}]\n", rules,
		strings.TrimPrefix(s.url, "http://"))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config),
		0o600); err != nil {
		t.Fatal(err)
	}
	prometheus := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", fmt.Sprintf("127.0.0.1:%d", port), "--log.level", "warn")
	var said testredis.LogBuffer
	prometheus.Stdout, prometheus.Stderr = &said, &said
	if err := prometheus.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		prometheus.Process.Kill()
		prometheus.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	api := fmt.Sprintf("http://127.0.0.1:%d/api/v1/", port)
	testwait.Until(t, "a scrape",
		func() bool { return len(query(api, "up == 1")) == 1 })
	scrapes := func() int {
		values := query(api, "sum_over_time(up[1h])")
		if len(values) != 1 {
			return 0
		}
		n, _ := strconv.Atoi(values[0])
		return n
	}
	for range 3 { // a rate has at least two values
		smallLoad(s)
		before := 0
		testwait.Until(t, "two scrapes, of which the second has begun after the load",
			func() bool {
				now := scrapes()
				before = cmp.Or(before, now)
				return before > 0 && now >= before+2
			})
	}
	for _, e := range dashboardExpressions(t) {
		// All that has been scraped. Nothing answers while a scrape takes too long.
		text := strings.NewReplacer("$__rate_interval", "1h", "$instance", ".*").Replace(e.text)
		testwait.Until(t, e.where+": numbers in answer to "+text, func() bool {
			values := query(api, text)
			return len(values) > 0 && !(slices.Contains(values, "NaN") &&
				strings.Contains(text, "histogram_quantile") && !strings.Contains(text, "kind"))
		})
	}
	var groups struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health string }
			}
		}
	}
	testwait.Until(t, "the alerts to be evaluated", func() bool {
		resp, err := http.Get(api + "rules")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		if json.NewDecoder(resp.Body).Decode(&groups) != nil || len(groups.Data.Groups) != 1 {
			return false
		}
		for _, rule := range groups.Data.Groups[0].Rules {
			if rule.Health != "ok" {
				return false
			}
		}
		return len(groups.Data.Groups[0].Rules) == len(alertExpressions(t))
	})
}

// query returns the values that an expression has now.
func query(api, expression string) (values []string) {
	resp, err := http.Get(api + "query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil {
		return nil
	}
	for _, r := range answer.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values
}
