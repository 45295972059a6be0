//go:build !linux

package main

import (
	"fmt"
	"os"
)

func soakMain([]string) int {
	fmt.Fprintln(os.Stderr, "locktools soak: it needs Linux")
	return 2
}
