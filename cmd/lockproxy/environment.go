package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// envPrefix begins the names of all variables that are lockproxy's.
const envPrefix = "LOCKPROXY_"

// checkEnvironment refuses a variable that no flag reads: its name is probably misspelled, and the
// default would be used instead.
func checkEnvironment(program *kong.Node) error {
	known := map[string]bool{
		"LOCKPROXY_KEY": true, "LOCKPROXY_TOKEN": true, heldVariable: true, // lockproxy run sets them
	}
	kong.Visit(program, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			for _, name := range flag.Envs {
				known[name] = true
			}
		}
		return next(nil)
	})
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, envPrefix) && !known[name] && !isForeignVariable(name, value) {
			if meant := guess(name, slices.Collect(maps.Keys(known))); meant != "" {
				return fmt.Errorf("unknown environment variable %s%s; see lockproxy --help", name,
					meant)
			}
			return fmt.Errorf("unknown environment variable %s: want LOCKPROXY_ and the name of a "+
				"flag, as in LOCKPROXY_MAX_CLIENTS; see lockproxy --help", name)
		}
	}
	return nil
}

// serviceVariable is what Kubernetes sets in every pod for a service named lockproxy.
var serviceVariable = regexp.MustCompile(
	`_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// isForeignVariable reports whether others than lockproxy's users set the variable: Kubernetes, or
// lockproxy's own tests.
func isForeignVariable(name, value string) bool {
	return serviceVariable.MatchString(name) || strings.HasPrefix(name, "LOCKPROXY_TEST_") ||
		strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}
