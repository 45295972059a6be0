package proxy

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/upstream"
)

// The log says once that the upstream does not serve, if a look and a connect find that, and once
// that it does.
func TestUpstreamStatus(t *testing.T) {
	const full, replica, refused = "full", "a replica", "connection refused"
	for name, steps := range map[string]string{
		"a look, then a connect":  refused + "! " + noConnect + " serves!",
		"a connect, then a look":  noConnect + "! " + refused + " connects!",
		"only looks":              refused + "! " + refused + " serves! serves",
		"only connects":           noConnect + "! " + noConnect + " connects! connects",
		"seen by a look":          noConnect + "! serves! " + noConnect + "!",
		"a connect to a full one": full + "+! connects " + full + "+ " + replica + "+! serves!",
		"fuller":                  "1.5M+! 2.25M+ serves!",
		"lost, and full since":    noConnect + "! " + full + "+! serves!",
	} {
		t.Run(name, func(t *testing.T) {
			var u upstreamStatus
			var out bytes.Buffer
			log := hclog.New(&hclog.LoggerOptions{Output: &out})
			words := strings.NewReplacer(noConnect, "noConnect", replica, "replica", refused, "refused")
			for i, step := range strings.Fields(words.Replace(steps)) {
				what, want := strings.CutSuffix(step, "!")
				out.Reset()
				got := false
				switch fault, connected := strings.CutSuffix(what, "+"); fault {
				case "serves":
					u.serves(log, &upstream.Upstream{})
				case "connects":
					u.connects(log, &upstream.Upstream{})
				case "noConnect":
					got = u.fails(noConnect, false)
				default:
					got = u.fails(fault, connected)
				}
				if got = got || out.Len() > 0; got != want {
					t.Errorf("step %d, %s: said %v, want %v", i, step, got, want)
				}
			}
		})
	}
}

// A look that ends without an answer finds the same fault as a connect that has failed before.
func TestLookWithoutAnAnswer(t *testing.T) {
	silent, err := upstream.Parse("redis://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []bool{false, true} {
		var out bytes.Buffer
		s := New(Config{Upstream: silent, Logger: hclog.New(&hclog.LoggerOptions{Output: &out})})
		if known {
			s.status.fails(noConnect, false)
		}
		s.look(context.Background(), 0, true) // there is no time for an answer
		said := strings.Contains(out.String(), "the upstream does not answer")
		if said == known {
			t.Errorf("the fault is known: %v; the log says %q", known, out.String())
		}
		s.Close()
	}
}
