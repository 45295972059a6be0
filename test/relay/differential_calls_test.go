//go:build !race

package relay_test

import (
	"strings"
	"testing"
)

// TestDifferential holds every conversation of testdata/differential with a redis-server and,
// through the proxy, with an identical one, and compares the replies byte for byte.
func TestDifferential(t *testing.T) {
	t.Parallel()
	seen := &diffCoverage{answered: map[string]bool{}, refused: map[string]bool{}}
	commands := diffCommands(t)
	t.Run("calls", func(t *testing.T) {
		for _, script := range diffScripts(t) {
			for _, proto := range []string{"2", "3"} {
				t.Run(strings.TrimSuffix(script.file, ".txt")+"/RESP"+proto, func(t *testing.T) {
					t.Parallel()
					script.run(t, proto, seen, commands)
				})
			}
		}
		for _, proto := range []string{"2", "3"} {
			t.Run("arity/RESP"+proto, func(t *testing.T) {
				t.Parallel()
				diffArity(t, proto, seen, commands)
			})
			t.Run("types/RESP"+proto, func(t *testing.T) {
				t.Parallel()
				diffTypes(t, proto, seen, commands)
			})
			t.Run("large/RESP"+proto, func(t *testing.T) {
				t.Parallel()
				diffLarge(t, proto, seen, commands)
			})
		}
	})
	seen.check(t, commands)
}
