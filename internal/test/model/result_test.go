package model

import (
	"errors"
	"strings"
	"testing"
)

const searched = `
Full statespace search for:
	never claim         	- (none specified)
	assertion violations	+
	invalid end states	+

State-vector 164 byte, depth reached 116, errors: ERRORS
   1.25e+06 states, stored
    10000 states, matched
   216.417	total actual memory usage
`

func TestReadResult(t *testing.T) {
	none := strings.Replace(searched, "ERRORS", "0", 1)
	one := strings.Replace(searched, "ERRORS", "1", 1)
	for _, c := range []struct {
		name, out, broken string
		fails             bool
	}{
		{"nothing is broken", none, "", false},
		{"a property is broken", "pan:1: assertion violated tokens_rise (at depth 12)\n" + one,
			"tokens_rise", false},
		{"nobody can go on", "pan:1: invalid end state (at depth 9)\n" + one, "deadlock", false},
		{"an error of another kind", "pan:1: array bounds (at depth 3)\n" + one, "", true},
		{"too deep", "error: max search depth too small\n" + none, "", true},
		{"too large", "pan: reached -DMEMLIM bound\n" + none, "", true},
		{"cut short", "Warning: Search not completed\n" + none, "", true},
		{"not exhaustive", strings.Replace(none, "Full statespace", "Bit statespace", 1), "", true},
		{"nothing at all", "", "", true},
	} {
		r, err := readResult(c.out)
		if (err != nil) != c.fails || r.broken != c.broken {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
		if err == nil && (r.states != 1250000 || r.depth != 116 || r.memory != 216) {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// A search that did not end shows nothing, even where nothing is expected.
func TestVerdictOfWhatProvesNothing(t *testing.T) {
	v := verdict{err: errors.New("ended by its timeout")}
	if v.asExpected(config{}) {
		t.Error("a failed search has passed for one that found nothing")
	}
	v = verdict{result: result{broken: "fair"}}
	if v.asExpected(config{breaks: "exclusion"}) || v.asExpected(config{}) {
		t.Error("another property than the expected one is broken, and it has passed")
	}
}
