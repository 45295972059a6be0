package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usage is what a Redis has done so far: scripts run, commands run (those inside scripts too), CPU time.
type usage struct {
	scripts, commands int
	cpu               time.Duration
}

func (u usage) minus(before usage) usage {
	return usage{u.scripts - before.scripts, u.commands - before.commands, u.cpu - before.cpu}
}

// monitor asks a Redis, directly.
type monitor struct{ *rawClient }

func (m monitor) usage() (usage, error) {
	var u usage
	stats, err := m.do("INFO", "commandstats")
	if err != nil {
		return u, fmt.Errorf("cannot ask Redis for its command statistics: %w", err)
	}
	cpu, err := m.do("INFO", "cpu")
	if err != nil {
		return u, fmt.Errorf("cannot ask Redis for its CPU time: %w", err)
	}
	for name, value := range fields(stats.text) {
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		n, _ := strconv.Atoi(calls)
		switch name {
		case "cmdstat_info": // its own
			continue
		case "cmdstat_evalsha", "cmdstat_eval":
			u.scripts += n
		}
		u.commands += n
	}
	for name, value := range fields(cpu.text) {
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, _ := strconv.ParseFloat(value, 64)
			u.cpu += time.Duration(seconds * float64(time.Second))
		}
	}
	return u, nil
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
