// Command locktools has the tools of those who change lockproxy, which test more than go test does:
//
//	locktools soak     random faults of machines, networks and operators, and a check of what
//	                   clients saw: see docs/bench.md and internal/test/faults/soak (Linux)
//	locktools stress   a command, such as go test, on a machine that is as bad as machines are:
//	                   see internal/test/stress
//	locktools model    every order of steps of the lock protocol: see internal/test/model
//	locktools mutate   changes of the product that no test notices: see internal/test/mutate
//
// make long runs each of them; each has a --help of its own.
package main

import (
	"fmt"
	"os"

	"lockproxy/internal/test/model"
	"lockproxy/internal/test/mutate"
	"lockproxy/internal/test/stress"
)

// tools return the exit status.
var tools = map[string]func(args []string) int{
	"soak": soakMain, "stress": stress.Main, "model": model.Main, "mutate": mutate.Main,
}

func main() {
	if len(os.Args) > 1 {
		if tool := tools[os.Args[1]]; tool != nil {
			os.Exit(tool(os.Args[2:]))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: locktools soak|stress|model|mutate [flags]; "+
		"locktools soak --help, and so on")
	os.Exit(2)
}
