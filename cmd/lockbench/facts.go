package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes where the figures come from, as far as they depend on it.
func machine() string {
	return fmt.Sprintf("%d processor cores (%s), shared by Redis, the proxies and the clients",
		runtime.NumCPU(), cpuModel())
}

func platform() string {
	return fmt.Sprintf("%s, %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // elsewhere than on Linux there is none
	for line := range strings.SplitSeq(string(info), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok &&
			strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "model unknown"
}

// kernel is the system's name and the first two numbers of its version: the rest can name the
// machine.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOOS
	}
	numbers := strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 3)
	return unix.ByteSliceToString(u.Sysname[:]) + " " + strings.Join(numbers[:min(2, len(numbers))],
		".")
}
