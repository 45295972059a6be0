package model

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed *.pml
var sources embed.FS

// Limits of one search. What it needs is far below: who reaches them has changed the model too much
// for a search to the end.
const (
	searchTimeout = 30 * time.Minute
	searchMemory  = 3000 // MB
)

// search is one run of spin, of the C compiler, and of the verifier that comes of it.
type search struct {
	config
	dir string        // where its files are
	cpu time.Duration // used so far
}

// newSearch puts the model into a new directory.
func newSearch(c config, dir string) (*search, error) {
	files, err := sources.ReadDir(".")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := sources.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name()), text, 0o644); err != nil {
			return nil, err
		}
	}
	return &search{config: c, dir: dir}, nil
}

// run searches all states. An error is a search that shows nothing.
func (s *search) run(ctx context.Context) (result, error) {
	if err := s.compile(ctx, "-DNOREDUCE"); err != nil {
		return result{}, err
	}
	out, err := s.command(ctx, "./pan", s.panFlags()...)
	r, unread := readResult(out)
	if unread != nil && err != nil {
		return r, fmt.Errorf("%w (%v)", unread, err)
	}
	return r, unread
}

// trail searches for the shortest run that breaks the property, and returns it, a step a line.
func (s *search) trail(ctx context.Context) (string, error) {
	if err := s.compile(ctx, "-DNOREDUCE", "-DREACH"); err != nil {
		return "", err
	}
	if out, err := s.command(ctx, "./pan", append([]string{"-i"}, s.panFlags()...)...); err != nil {
		return "", fmt.Errorf("%w: %s", err, firstProblem(out))
	}
	args := append([]string{"-t", "-T"}, append(s.defines(), "model.pml")...)
	out, _ := s.command(ctx, "spin", args...) // it fails as the run does
	var steps []string
	for line := range strings.Lines(out) {
		if trailLine.MatchString(line) {
			steps = append(steps, strings.TrimRight(line, "\n"))
		}
	}
	if len(steps) == 0 {
		return "", fmt.Errorf("no trail: %s", firstProblem(out))
	}
	return strings.Join(steps, "\n"), nil
}

// trailLine is what the model itself prints of a run, which begins with the tick, and the assertion
// that ends it.
var trailLine = regexp.MustCompile(`^(\d+  |spin: text of failed)`)

func (s *search) defines() []string {
	var flags []string
	for _, d := range strings.Fields(s.with) {
		flags = append(flags, "-D"+d)
	}
	return flags
}

// panFlags bounds the depth. Where time ends no run is long, and all end with everybody stuck.
// Where none passes (ENDLESS, ALLS) nobody may get stuck, unless MAY_STICK.
func (s *search) panFlags() []string {
	switch {
	case strings.Contains(s.with, "MAY_STICK"):
		return []string{"-m6000000", "-E"}
	case strings.Contains(s.with, "ENDLESS"), strings.Contains(s.with, "ALLS"):
		return []string{"-m3000000"}
	}
	return []string{"-m20000", "-E"}
}

func (s *search) compile(ctx context.Context, flags ...string) error {
	args := append([]string{"-a"}, append(s.defines(), "model.pml")...)
	if out, err := s.command(ctx, "spin", args...); err != nil || strings.Contains(out, "Error") {
		return fmt.Errorf("spin: %s", strings.TrimSpace(out))
	}
	optimize := "-O0" // takes the compiler 1 s instead of 8 s
	if s.size == large {
		optimize = "-O2"
	}
	flags = append(flags, optimize, "-w", "-DSAFETY", "-DCOLLAPSE",
		fmt.Sprintf("-DMEMLIM=%d", searchMemory), "-o", "pan", "pan.c")
	if out, err := s.command(ctx, "gcc", flags...); err != nil {
		return fmt.Errorf("gcc: %w: %s", err, strings.TrimSpace(out))
	}
	return nil
}

// command runs a program to its end and returns all that it has printed.
func (s *search) command(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		s.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%s: %w", name, ctx.Err())
	}
	return string(out), err
}
