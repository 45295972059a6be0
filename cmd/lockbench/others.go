package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watch sees how much of the machine programs use that are no part of the benchmark: what they use
// is missing in its figures.
type watch struct {
	began time.Time
	busy  time.Duration // of all cores
	own   time.Duration // of lockbench and the programs it has started and seen end
}

func startWatch() watch { return watch{time.Now(), machineCPU(), ownCPU()} }

// others is the share of the cores that others have used, 0 to 1. All programs that lockbench has
// started must have ended.
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

func machineCPU() time.Duration {
	// elsewhere than on Linux there is none, and nobody else to be seen
	stat, _ := os.ReadFile("/proc/stat")
	return parseMachineCPU(string(stat))
}

// parseMachineCPU adds up what programs have used, and what the host has taken away. Interrupts are
// left out: they serve everybody.
func parseMachineCPU(stat string) (total time.Duration) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != "cpu" {
		return 0
	}
	for i, field := range fields {
		const user, nice, system, steal = 1, 2, 3, 8
		if i == user || i == nice || i == system || i == steal {
			n, _ := strconv.Atoi(field)
			total += time.Duration(n) * tick
		}
	}
	return total
}

// quiet is how much others can use for the figures to be worth keeping.
const quiet = 0.03

// describeOthers says what a reader must know of the others.
func describeOthers(share float64) string {
	text := fmt.Sprintf("other programs used %.0f %% of the cores", 100*share)
	if share > quiet {
		text += ": **too much for the figures to be relied on**"
	}
	return text
}
