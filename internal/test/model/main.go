package model

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Main explores the configurations that its arguments name. It returns 1 if one is not as expected.
func Main(args []string) int {
	flags := flag.NewFlagSet("locktools model", flag.ExitOnError)
	pattern := flags.String("run", "",
		"explore only the configurations whose names match this `regexp`")
	only := flags.Bool("quick", false, "explore only a few configurations, in a minute")
	trail := flags.String("trail", "",
		"print the shortest run that breaks the property of the configuration of this `name`")
	parallel := flags.Int("j", runtime.NumCPU(),
		"the number of searches at a time; each needs up to 1 GB, and ends at 3 GB")
	flags.Parse(args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "lockproxy-model-")
	if err == nil {
		defer os.RemoveAll(dir)
		if *trail != "" {
			err = printTrail(ctx, dir, *trail)
		} else {
			err = exploreAll(ctx, dir, *pattern, *only, *parallel)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		return 1
	}
	return 0
}

// exploreAll prints a line for each configuration whose name matches, in their order.
func exploreAll(ctx context.Context, dir, pattern string, onlyQuick bool, parallel int) error {
	names, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	var chosen []config
	for _, c := range configs() {
		if names.MatchString(c.name) && (c.size == quick || !onlyQuick) {
			chosen = append(chosen, c)
		}
	}
	began, verdicts := time.Now(), make([]chan verdict, len(chosen))
	slots := make(chan struct{}, max(parallel, 1))
	var running sync.WaitGroup
	defer running.Wait()
	for i := range chosen {
		verdicts[i] = make(chan verdict, 1)
	}
	running.Go(func() { // ends when all have begun; they end with ctx, or their timeouts
		for i, c := range chosen {
			slots <- struct{}{}
			running.Go(func() {
				verdicts[i] <- explore(ctx, c, filepath.Join(dir, strconv.Itoa(i)))
				<-slots
			})
		}
	})

	failed, states, cpu := 0, int64(0), time.Duration(0)
	for i, c := range chosen {
		v := <-verdicts[i]
		fmt.Println(v.line(c))
		if !v.asExpected(c) {
			failed++
		}
		states += v.states
		cpu += v.cpu
	}
	fmt.Printf("%d passed, %d failed\n", len(chosen)-failed, failed)
	fmt.Printf("%s states, %.0f s of CPU time in %.0f s\n",
		thousands(states), cpu.Seconds(), time.Since(began).Seconds())
	switch {
	case len(chosen) == 0:
		return errors.New("no configuration has a name that matches")
	case failed > 0:
		return fmt.Errorf("%d configurations did not behave as expected", failed)
	}
	return nil
}

// verdict is how one search has ended.
type verdict struct {
	result
	cpu time.Duration
	err error
}

func explore(ctx context.Context, c config, dir string) verdict {
	s, err := newSearch(c, dir)
	if err != nil {
		return verdict{err: err}
	}
	defer os.RemoveAll(dir)
	r, err := s.run(ctx)
	return verdict{r, s.cpu, err}
}

func (v verdict) asExpected(c config) bool { return v.err == nil && v.broken == c.breaks }

func (v verdict) line(c config) string {
	word, found := "ok  ", v.broken
	if !v.asExpected(c) {
		word = "FAIL"
	}
	if found == "" {
		found = "nothing"
	}
	if v.err != nil {
		found = v.err.Error()
	}
	return fmt.Sprintf("%s  %-48s expected %-14s found %-14s %12s states %5d MB %6.1f s",
		word, c.name, or(c.breaks, "nothing"), found,
		thousands(v.states), v.memory, v.cpu.Seconds())
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

func printTrail(ctx context.Context, dir, name string) error {
	for _, c := range configs() {
		if c.name != name {
			continue
		}
		s, err := newSearch(c, dir)
		if err != nil {
			return err
		}
		steps, err := s.trail(ctx)
		if err != nil {
			return err
		}
		fmt.Println(steps)
		return nil
	}
	return fmt.Errorf("no configuration is named %q", name)
}

func configs() []config {
	var all []config
	for _, list := range [][]config{
		lockAlone(), nextToForeign(), residues(), findings(), broken(), witnesses(),
		shared(), brokenShared(), seenShared(), features(), brokenFeatures(), seenFeatures(),
	} {
		all = append(all, list...)
	}
	return all
}
