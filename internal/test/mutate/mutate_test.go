package mutate

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

func (s *T) f(n int, on bool) bool {
	if n < 2 && on {
		return false
	}
	s.log.Info("n", "is", n+1)
	s.mu.Lock()
	s.last = n
	switch {
	case n == 7:
		s.g()
	}
	switch n {
	case 8:
		s.g()
	}
	s.g()
	return true
}
`

var ofSample = []string{
	"T.f return at once: body",
	"T.f and/or: n < 2 && on",
	"T.f drop term: n < 2",
	"T.f drop term: on",
	"T.f less: n < 2",
	"T.f constant: 2 in n < 2",
	"T.f negate condition: n < 2 && on",
	"T.f always: n < 2 && on",
	"T.f drop guard: n < 2 && on",
	"T.f bool: false",
	"T.f drop statement: s.last = n",
	"T.f skip case: case n == 7",
	"T.f equal: n == 7",
	"T.f constant: 7 in n == 7",
	"T.f drop statement: s.g()",
	"T.f skip case: case 8",
	"T.f drop statement: s.g() (2)",
	"T.f drop statement: s.g() (3)",
	"T.f bool: true",
}

// keysOf are the names of changes without their place.
func keysOf(changes []*change) (keys []string) {
	numberSame(changes)
	for _, c := range changes {
		_, key, _ := strings.Cut(c.key(), " ")
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Each change of Go source can be compiled, and other lines do not change its name.
func TestGoChanges(t *testing.T) {
	want := slices.Sorted(slices.Values(ofSample))
	for _, source := range []string{sample, strings.Replace(sample, "func", "var x int\n\nfunc", 1)} {
		changes, err := goChanges("p", "p/f.go", []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		if keys := keysOf(changes); !slices.Equal(keys, want) {
			t.Errorf("the changes are\n%s", strings.Join(keys, "\n"))
		}
		for i, c := range changes {
			c.number = i + 1
			text := changed([]byte(source), []*change{c})
			if _, err := parser.ParseFile(token.NewFileSet(), "f.go", text, 0); err != nil {
				t.Errorf("%s: %v in\n%s", c.key(), err, text)
			}
			if text == source || !strings.Contains(text, "isChosen(") {
				t.Errorf("%s changes nothing", c.key())
			}
		}
	}
}

// Comments and strings of scripts are not changed, nor statements that take several lines.
func TestLuaChanges(t *testing.T) {
	const script = `--[[ 1 and 2
is not 3 ]]
local function f(a)
  if not a then return 'x and y' end -- 4
  redis.call('GET', f(a))
  x = a
    or b
end
`
	want := []string{
		"s.f negate: not in if not a then return 'x and y' end -- 4",
		"s.f always: not a in if not a then return 'x and y' end -- 4",
		"s.f never: not a in if not a then return 'x and y' end -- 4",
		"s.f drop statement: redis.call('GET', f(a))",
		"s.f and/or: or in or b",
	}
	slices.Sort(want)
	changes := luaChanges("lockcmd/script/s.lua", []byte(script))
	if keys := keysOf(changes); !slices.Equal(keys, want) {
		t.Errorf("the changes are\n%s", strings.Join(keys, "\n"))
	}
}

// A seed draws the same changes, of each kind in turn, whatever else there is to draw.
func TestOrderOfChanges(t *testing.T) {
	var few, more []*change
	for _, was := range []string{"a", "b", "c"} {
		for _, kind := range []string{"bool", "equal"} {
			few = append(few, &change{place: "p", kind: kind, was: was})
		}
		more = append(more, &change{place: "p", kind: "never", was: was})
	}
	drawn := keysOf(inOrder(7, slices.Clone(few))[:2])
	if !strings.HasPrefix(drawn[0], " bool") || !strings.HasPrefix(drawn[1], " equal") {
		t.Errorf("drawn: %q", drawn)
	}
	order := inOrder(7, append(few, more...))
	order = slices.DeleteFunc(order, func(c *change) bool { return c.kind == "never" })
	if again := keysOf(order[:2]); !slices.Equal(again, drawn) {
		t.Errorf("drawn with others: %q, not %q", again, drawn)
	}
}

func TestEquivalentChanges(t *testing.T) {
	got := readEquivalent("# why\np f bool: true\n    It is read\n    by nobody.\n")
	if len(got) != 1 || got["p f bool: true"] != "It is read by nobody." {
		t.Errorf("read %q", got)
	}
	for key, reason := range readEquivalent(equivalentText) {
		if reason == "" {
			t.Errorf("%s has no reason", key)
		}
	}
}
