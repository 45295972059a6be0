package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// section is a part of a report: a table with what must be known to read it.
type section struct {
	title  string
	before string // paragraphs
	header []string
	rows   [][]string
	after  string
}

func (s *section) row(cells ...string) { s.rows = append(s.rows, cells) }

func (s *section) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", s.title, strings.TrimSpace(s.before))
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(s.header, " | "), "---|"+strings.Repeat("---:|", len(s.header)-1))
	for _, row := range s.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	if s.after != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(s.after))
	}
	return b.String()
}

// machine describes where the figures come from, as far as they depend on it.
func machine(redisVersion string) string {
	return fmt.Sprintf("%d processor cores (%s), shared by Redis, the proxies and the clients; Redis %s; %s, %s/%s",
		runtime.NumCPU(), cpuModel(), redisVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // elsewhere than on Linux there is none
	for line := range strings.SplitSeq(string(info), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "model unknown"
}

// median of at least one value; of an even number, the upper of the middle two.
func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// over is a figure of every round.
func over[R any, T any](rounds []R, figure func(R) T) []T {
	values := make([]T, len(rounds))
	for i, r := range rounds {
		values[i] = figure(r)
	}
	return values
}

// middle formats the median of a figure over the rounds.
func middle[R any](rounds []R, format string, figure func(R) float64) string {
	return fmt.Sprintf(format, median(over(rounds, figure)))
}

// spread formats the median of a figure, and its least and greatest in any round.
func spread[R any](rounds []R, format string, figure func(R) float64) string {
	values := over(rounds, figure)
	return fmt.Sprintf(format+" ("+format+"–"+format+")", median(values), slices.Min(values), slices.Max(values))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// per divides, and gives 0 for what didn't happen.
func per(amount float64, times int) float64 {
	if times == 0 {
		return 0
	}
	return amount / float64(times)
}
