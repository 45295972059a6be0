package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usage is the work of one Redis, or of several, so far.
type usage struct {
	scripts, commands int // commands includes those inside scripts
	gets, sets        int
	found             int // reads of keys that exist
	connections       int
	cpu               time.Duration
}

func (u usage) plus(other usage, times int) usage {
	return usage{
		scripts: u.scripts + times*other.scripts, commands: u.commands + times*other.commands,
		gets: u.gets + times*other.gets, sets: u.sets + times*other.sets,
		found:       u.found + times*other.found,
		connections: u.connections + times*other.connections,
		cpu:         u.cpu + time.Duration(times)*other.cpu,
	}
}

// usageOf asks each Redis, directly.
func usageOf(monitors ...*client) (sum usage, err error) {
	for _, m := range monitors {
		info, err := m.do("INFO", "everything")
		if err != nil {
			return usage{}, fmt.Errorf("cannot ask Redis for its work so far: %w", err)
		}
		sum = sum.plus(parseUsage(info.text), 1)
	}
	return sum, nil
}

func parseUsage(info string) (u usage) {
	for line := range strings.SplitSeq(info, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.Atoi(calls)
			u.count(command, n)
			continue
		}
		switch name {
		case "keyspace_hits":
			u.found, _ = strconv.Atoi(value)
		case "total_connections_received":
			u.connections, _ = strconv.Atoi(value)
		case "used_cpu_sys", "used_cpu_user":
			seconds, _ := strconv.ParseFloat(value, 64)
			u.cpu += time.Duration(seconds * float64(time.Second))
		}
	}
	return u
}

func (u *usage) count(command string, calls int) {
	switch command {
	case "info": // lockbench's own
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
