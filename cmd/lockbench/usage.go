package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usage is what a Redis has done so far.
type usage struct {
	scripts, commands int // commands: those inside scripts too
	gets, sets        int
	misses            int // reads of keys that aren't there
	cpu               time.Duration
}

func (u usage) minus(before usage) usage {
	return usage{
		scripts: u.scripts - before.scripts, commands: u.commands - before.commands,
		gets: u.gets - before.gets, sets: u.sets - before.sets, misses: u.misses - before.misses,
		cpu: u.cpu - before.cpu,
	}
}

func (u usage) plus(other usage) usage {
	return usage{
		scripts: u.scripts + other.scripts, commands: u.commands + other.commands,
		gets: u.gets + other.gets, sets: u.sets + other.sets, misses: u.misses + other.misses,
		cpu: u.cpu + other.cpu,
	}
}

// monitor asks a Redis, directly.
type monitor struct{ *rawClient }

func (m monitor) usage() (usage, error) {
	info, err := m.do("INFO", "all")
	if err != nil {
		return usage{}, fmt.Errorf("cannot ask Redis what it has done: %w", err)
	}
	return parseUsage(info.text), nil
}

func parseUsage(info string) (u usage) {
	for name, value := range fields(info) {
		if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.Atoi(calls)
			u.count(command, n)
			continue
		}
		switch name {
		case "keyspace_misses":
			u.misses, _ = strconv.Atoi(value)
		case "used_cpu_sys", "used_cpu_user":
			seconds, _ := strconv.ParseFloat(value, 64)
			u.cpu += time.Duration(seconds * float64(time.Second))
		}
	}
	return u
}

func (u *usage) count(command string, calls int) {
	switch command {
	case "info": // the monitor's own
		return
	case "evalsha", "eval":
		u.scripts += calls
	case "get":
		u.gets = calls
	case "set":
		u.sets = calls
	}
	u.commands += calls
}

// connections is how many Redis has had so far.
func (m monitor) connections() (int, error) {
	info, err := m.do("INFO", "stats")
	if err != nil {
		return 0, fmt.Errorf("cannot ask Redis for its connections: %w", err)
	}
	for name, value := range fields(info.text) {
		if name == "total_connections_received" {
			return strconv.Atoi(value)
		}
	}
	return 0, errors.New("Redis does not tell how many connections it has had")
}

func (m monitor) version() string {
	info, err := m.do("INFO", "server")
	if err != nil {
		return "unknown"
	}
	for name, value := range fields(info.text) {
		if name == "redis_version" {
			return value
		}
	}
	return "unknown"
}

// fields goes through the lines of an INFO.
func fields(info string) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		for line := range strings.SplitSeq(info, "\r\n") {
			name, value, ok := strings.Cut(line, ":")
			if ok && !yield(name, value) {
				return
			}
		}
	}
}
