package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is the number of a running process, about which proc(5) tells.
type process int

func (p process) read(name string) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p, name))
	if err != nil {
		err = fmt.Errorf("cannot tell how much a server uses: %w", err)
	}
	return string(text), err
}

// tick is the unit of times in /proc on Linux, whatever the kernel's own.
const tick = 10 * time.Millisecond

// cpu is the processor time of all threads so far, in user and kernel mode, to 10 ms.
func (p process) cpu() (time.Duration, error) {
	stat, err := p.read("stat")
	if err != nil {
		return 0, err
	}
	return parseCPU(stat)
}

func parseCPU(stat string) (total time.Duration, err error) {
	// The name, in parentheses, can have spaces and parentheses itself.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12 // among the fields after the name
	for _, i := range []int{user, system} {
		if len(fields) <= i {
			return 0, fmt.Errorf("cannot read the processor time of a server from %q", stat)
		}
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0, fmt.Errorf("cannot read the processor time of a server: %w", err)
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// resident is the resident memory, in bytes.
func (p process) resident() (int, error) {
	statm, err := p.read("statm")
	if err != nil {
		return 0, err
	}
	var size, resident int // in pages
	if _, err := fmt.Sscan(statm, &size, &resident); err != nil {
		return 0, fmt.Errorf("cannot read the memory of a server: %w", err)
	}
	return resident * os.Getpagesize(), nil
}

// raiseFileLimit lets this process and its servers have as many files open as the system allows,
// and returns that number.
func raiseFileLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	limit.Cur = limit.Max
	// Without this call children would not inherit the limit: the runtime has raised it for this
	// process alone.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	return int(min(limit.Cur, 1<<20))
}

// watch sees how much of the machine other programs use: the figures lack that.
type watch struct {
	began     time.Time
	busy, own time.Duration // of all cores; of lockbench and of its servers that have ended
}

func startWatch() watch { return watch{time.Now(), machineCPU(), ownCPU()} }

// others is the share of the cores that other programs have used. All servers must have ended.
func (w watch) others() float64 {
	others := machineCPU() - w.busy - (ownCPU() - w.own)
	return max(0, float64(others)/float64(time.Since(w.began))/float64(runtime.NumCPU()))
}

func ownCPU() (total time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return total
}

// machineCPU is the processor time of all programs, and the time that the host has taken away. It
// leaves interrupts out, which serve all programs.
func machineCPU() time.Duration {
	stat, _ := os.ReadFile("/proc/stat")
	return parseMachineCPU(string(stat))
}

func parseMachineCPU(stat string) (total time.Duration) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	const user, nice, system, steal = 1, 2, 3, 8
	for _, i := range []int{user, nice, system, steal} {
		if len(fields) > i && fields[0] == "cpu" {
			n, _ := strconv.Atoi(fields[i])
			total += time.Duration(n) * tick
		}
	}
	return total
}

// machine describes the machine, as far as the figures depend on it.
func machine() string {
	model := "model unknown"
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok &&
			strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	kernel := runtime.GOOS
	var u unix.Utsname
	if unix.Uname(&u) == nil { // the rest of the release can contain the machine's name
		release, _, _ := bytes.Cut(u.Release[:bytes.IndexByte(u.Release[:], 0)], []byte("-"))
		kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + string(release)
	}
	return fmt.Sprintf("%d cores (%s), shared by Redis, the proxies and the clients; %s",
		runtime.NumCPU(), model, kernel)
}
