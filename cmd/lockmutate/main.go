// The program lockmutate judges the tests by changes of what they test: see internal/test/mutate.
package main

import (
	"os"

	"lockproxy/internal/test/mutate"
)

func main() { os.Exit(mutate.Main(os.Args[1:])) }
