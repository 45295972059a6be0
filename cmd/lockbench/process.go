package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// process is what the system knows of a running process: see proc(5).
type process struct{ pid int }

func (p process) path(name string) string { return fmt.Sprintf("/proc/%d/%s", p.pid, name) }

// cpu is the processor time that all threads have used so far, user's and system's, to 10 ms.
func (p process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(p.path("stat"))
	if err != nil {
		return 0, fmt.Errorf("cannot tell the CPU time of a server: %w", err)
	}
	return parseCPU(stat)
}

// proxiesCPU is that of all lockproxies that locks are taken through.
func (b *bench) proxiesCPU() (total time.Duration, err error) {
	for _, s := range b.servers.running {
		if !slices.Contains(b.proxies, s.addr) {
			continue
		}
		used, err := s.process().cpu()
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

// tick is the unit of times in /proc on Linux, whatever the kernel's own.
const tick = 10 * time.Millisecond

func parseCPU(stat []byte) (time.Duration, error) {
	// The name, in parentheses, can have spaces and parentheses itself.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const user, system = 11, 12 // of those after the name
	if len(fields) <= system {
		return 0, fmt.Errorf("cannot read the CPU time of a server from %q", stat)
	}
	u, err := strconv.Atoi(fields[user])
	if err != nil {
		return 0, fmt.Errorf("cannot read the CPU time of a server: %w", err)
	}
	s, err := strconv.Atoi(fields[system])
	if err != nil {
		return 0, fmt.Errorf("cannot read the CPU time of a server: %w", err)
	}
	return time.Duration(u+s) * tick, nil
}

// resident is the resident memory, in bytes.
func (p process) resident() (int, error) {
	status, err := os.ReadFile(p.path("status"))
	if err != nil {
		return 0, fmt.Errorf("cannot tell the memory of a server: %w", err)
	}
	return parseResident(string(status))
}

func parseResident(status string) (int, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value),
				"kB")))
			if err != nil {
				return 0, fmt.Errorf("cannot read the memory of a server: %w", err)
			}
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("cannot read the memory of a server: no VmRSS in its status")
}

// files is the number of open file descriptors.
func (p process) files() (int, error) {
	list, err := os.ReadDir(p.path("fd"))
	if err != nil {
		return 0, fmt.Errorf("cannot count the open files of a server: %w", err)
	}
	return len(list), nil
}
