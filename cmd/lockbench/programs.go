package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"lockproxy/cmd/lockbench/redisbench"
)

// The programs that lockproxy is compared with. They are servers, and some systems have those
// where only root looks.
var serverDirs = []string{"/usr/sbin", "/usr/local/sbin"}

//go:embed install.sh
var installScript string

// install installs HAProxy and twemproxy where they are missing.
func install(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "sh", "-s")
	cmd.Stdin = strings.NewReader(installScript)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(string(bytes.TrimSpace(out)))
	}
	return nil
}

// find is the path of a program.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	for _, dir := range serverDirs {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, program))
	}
	if err != nil {
		return "", fmt.Errorf("%s is not installed: %w", program, err)
	}
	return path, nil
}

// runProgram runs a program to its end.
func runProgram(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s failed: %w: %s", strings.Join(append([]string{program}, args...),
			" "), err, bytes.TrimSpace(out))
	}
	return nil
}

// versions are of what is measured, and by what.
type versions struct {
	redis, benchmark, lockproxy, haproxy, twemproxy string
}

// number is the first thing in a text that looks like a version.
var number = regexp.MustCompile(`\d+(\.\d+)+\S*`)

// printed is what a program prints, "" if it fails.
func printed(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// programVersions asks all programs but Redis, which is asked when it runs. What isn't installed is
// "".
func programVersions(lockproxy string, built bool) versions {
	v := versions{benchmark: redisbench.Version(),
		lockproxy: strings.TrimPrefix(printed(lockproxy, "--version"), "lockproxy ")}
	if revision := printed("git", "describe", "--always", "--dirty"); built && revision != "" {
		v.lockproxy = revision
	}
	if path, err := find("haproxy"); err == nil {
		v.haproxy = number.FindString(printed(path, "-v"))
	}
	if path, err := find("nutcracker"); err == nil {
		v.twemproxy = number.FindString(printed(path, "-V"))
	}
	return v
}

func lockLibraries() string {
	return fmt.Sprintf("go-redis %s, bsm/redislock %s, rueidislock %s",
		library("github.com/redis/go-redis/v9"), library("github.com/bsm/redislock"),
		library("github.com/redis/rueidis"))
}

// library is the version of a Go module that lockbench is built with.
func library(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
}

// proxyToMeasure is the program named, or one built in dir from the source that lockbench is run
// in.
func proxyToMeasure(ctx context.Context, named, dir string) (string, error) {
	if named != "" {
		path, err := filepath.Abs(named)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return "", fmt.Errorf("--proxy: %w", err)
		}
		return path, nil
	}
	path, err := buildProxy(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("%w\nRun lockbench inside lockproxy's source, or name a built "+
			"lockproxy with --proxy", err)
	}
	return path, nil
}
