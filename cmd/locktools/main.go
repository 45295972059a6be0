// Command locktools has the tools for people who change lockproxy. They test more than go test:
//
//	locktools soak     causes random faults of machines, networks and operators, and checks the
//	                   histories of the clients: see internal/test/faults/soak (Linux)
//	locktools stress   runs a command, such as go test, under CPU and disk pressure, with random
//	                   stalls: see internal/test/stress
//	locktools model    tries every order of steps of the lock protocol: see internal/test/model
//	locktools mutate   finds changes of the product that no test notices: see internal/test/mutate
//
// make long runs each of them. Each has a --help of its own.
package main

import (
	"fmt"
	"os"

	"lockproxy/internal/test/model"
	"lockproxy/internal/test/mutate"
	"lockproxy/internal/test/stress"
)

// tools are the tools by name. Each returns the exit status.
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
