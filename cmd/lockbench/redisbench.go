package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// load is one run of redis-benchmark, a part of Redis.
type load struct {
	addr     string
	test     string // GET or SET
	clients  int
	pipeline int // requests that each client sends before it waits for their replies
	size     int // of the value that SET writes, in bytes
	requests int
	more     []string // further arguments
}

// benchKey is the one key that GET and SET use, unless they use random ones.
const benchKey = "key:__rand_int__"

// loadLimit bounds a run of redis-benchmark. It is far longer than any run should take.
const loadLimit = time.Minute

// run returns when all requests are answered, or ctx is done. An error reply, a lost connection and
// an incomplete report are errors.
func (l load) run(ctx context.Context) (figures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, loadLimit, fmt.Errorf("it still ran after %v",
		loadLimit))
	defer cancel()
	host, port, _ := net.SplitHostPort(l.addr)
	number := strconv.Itoa
	args := []string{"-h", host, "-p", port, "--csv", "-t", strings.ToLower(l.test),
		"-c", number(l.clients), "-P", number(l.pipeline), "-d", number(l.size),
		"-n", number(l.requests)}
	cmd := exec.CommandContext(ctx, "redis-benchmark", append(args, l.more...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("redis-benchmark: %w", context.Cause(ctx))
	}
	if complaint := complaint(stderr.String()); complaint != "" {
		return nil, fmt.Errorf("redis-benchmark: %s", complaint)
	}
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark: %w", err)
	}
	f, err := parseBenchmark(stdout.String(), l.test)
	if err == nil {
		f["client CPU"] = each(us(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()),
			l.requests)
	}
	return f, err
}

// complaint is the first line of stderr that is more than a remark.
func complaint(stderr string) string {
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		// redis-benchmark asks for the configuration, and a proxy may not know CONFIG.
		if line != "" && !strings.HasPrefix(line, "WARN") {
			return line
		}
	}
	return ""
}

// parseBenchmark reads the CSV of redis-benchmark 7 and later, which has a header of column names.
func parseBenchmark(out, test string) (figures, error) {
	reader := csv.NewReader(strings.NewReader(out))
	reader.FieldsPerRecord = -1 // with --cluster, lines about the nodes come first
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark printed no CSV: %w", err)
	}
	last := len(rows) - 1
	if last < 1 || rows[last][0] != test || len(rows[last]) != len(rows[last-1]) {
		return nil, fmt.Errorf("redis-benchmark did not report on %s: it printed %q", test, out)
	}
	f := figures{}
	for i, name := range rows[last-1] {
		if shown := map[string]string{"rps": "requests/s", "p50_latency_ms": "p50 ms",
			"p99_latency_ms": "p99 ms"}[name]; shown != "" {
			if f[shown], err = strconv.ParseFloat(rows[last][i], 64); err != nil {
				return nil, fmt.Errorf("redis-benchmark reported %q as %s", rows[last][i], name)
			}
		}
	}
	if !(f["requests/s"] > 0) {
		return nil, fmt.Errorf("redis-benchmark reported no rate: it printed %q", out)
	}
	return f, nil
}
