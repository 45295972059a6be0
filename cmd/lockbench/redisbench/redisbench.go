// Package redisbench runs redis-benchmark, which Redis brings along, and reads what it reports.
package redisbench

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Load is one run: a command, sent again and again by many clients.
type Load struct {
	Addr     string
	Test     string // GET or SET
	Clients  int
	Pipeline int // requests that each client sends before it waits for their replies
	Size     int // of the value that SET writes, in bytes
	Requests int
	Threads  int // 0: one
	Keys     int // random ones; 0: Key alone
	// Addr is a node of a Redis Cluster; Keys is for each of its masters, all in one slot
	Cluster bool
}

// Key is the one key that GET and SET use, unless they use random ones.
const Key = "key:__rand_int__"

// Report is what is known of a run.
type Report struct {
	Rate float64       // requests/s
	CPU  time.Duration // that redis-benchmark itself has used, its start included
}

// Run runs until all requests are answered, or ctx is done. An error reply, a lost connection and a
// report that isn't whole are errors.
func Run(ctx context.Context, l Load) (Report, error) {
	host, port, err := net.SplitHostPort(l.Addr)
	if err != nil {
		return Report{}, fmt.Errorf("redis-benchmark: %w", err)
	}
	cmd := exec.CommandContext(ctx, "redis-benchmark", append([]string{"-h", host, "-p", port},
		l.args()...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("redis-benchmark: %w", context.Cause(ctx))
	}
	if complaint := complaint(stderr.String()); complaint != "" {
		return Report{}, fmt.Errorf("redis-benchmark: %s", complaint)
	}
	if err != nil {
		return Report{}, fmt.Errorf("redis-benchmark: %w", err)
	}
	r, err := parse(stdout.String(), l.Test)
	r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, err
}

// args are all but the address.
func (l Load) args() []string {
	number := strconv.Itoa
	args := []string{"--csv", "-t", strings.ToLower(l.Test), "-c", number(l.Clients), "-P",
		number(l.Pipeline), "-d", number(l.Size), "-n", number(l.Requests)}
	if l.Threads > 0 {
		args = append(args, "--threads", number(l.Threads))
	}
	if l.Keys > 0 {
		args = append(args, "-r", number(l.Keys))
	}
	if l.Cluster {
		args = append(args, "--cluster")
	}
	return args
}

// Version is as redis-benchmark says it, or "unknown".
func Version() string {
	out, _ := exec.Command("redis-benchmark", "--version").Output()
	if fields := strings.Fields(string(out)); len(fields) > 1 {
		return fields[1]
	}
	return "unknown"
}

// complaint is the first line of what was said on stderr that is more than a remark.
func complaint(stderr string) string {
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		// It asks for the configuration to show it, and a proxy may not know CONFIG.
		if line != "" && !strings.HasPrefix(line, "WARN") {
			return line
		}
	}
	return ""
}

// parse reads the rate from the CSV: it has a header of column names, or before Redis 7 the test's
// name and its rate alone.
func parse(out, test string) (Report, error) {
	reader := csv.NewReader(strings.NewReader(out))
	reader.FieldsPerRecord = -1
	rows, err := reader.ReadAll()
	if err != nil {
		return Report{}, fmt.Errorf("redis-benchmark printed no CSV: %w", err)
	}
	columns := []string{"test", "rps"}
	for _, row := range rows {
		switch {
		case row[0] == "test":
			columns = row
		case row[0] != test:
		case len(row) != len(columns):
			return Report{}, fmt.Errorf("redis-benchmark printed %d columns of %d", len(row),
				len(columns))
		default:
			text := row[max(slices.Index(columns, "rps"), 0)]
			rate, err := strconv.ParseFloat(text, 64)
			if err != nil || !(rate > 0) {
				return Report{}, fmt.Errorf("redis-benchmark reported a rate of %q", text)
			}
			return Report{Rate: rate}, nil
		}
	}
	return Report{}, fmt.Errorf("redis-benchmark didn't report on %s: it printed %q", test, out)
}
