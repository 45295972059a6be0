package mutate

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A change is one thing that can be changed in a file.
type change struct {
	place    string // package, or luaPlace
	file     string // from the root
	line     int
	function string
	kind     string
	was      string // the text that is changed, in one line
	nth      int    // of the same kind and text in the function, from 1
	start    int    // what is replaced, in the file
	end      int
	with     string // chosen stands for the condition that the change is chosen
	number   int    // chooses it, from 1
}

// chosen stands for the condition in change.with.
const chosen = "\x00"

// key names the change in all versions.
func (c *change) key() string {
	key := fmt.Sprintf("%s %s %s: %s", c.place, c.function, c.kind, c.was)
	if c.nth > 1 {
		key += fmt.Sprintf(" (%d)", c.nth)
	}
	return key
}

// number the changes that have the same names.
func numberSame(changes []*change) {
	seen := map[string]int{}
	for _, c := range changes {
		c.nth = 1
		key := c.key()
		seen[key]++
		c.nth = seen[key]
	}
}

// oneLine is a text in one line.
func oneLine(text string) string {
	const most = 100
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "..."
	}
	return text
}

// inOrder returns all changes of a place in the order in which a seed draws them: of each kind in
// turn. The order of two changes depends on nothing but their names.
func inOrder(seed uint64, changes []*change) (drawn []*change) {
	rank := func(name string) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, name))
		return string(sum[:])
	}
	kinds := map[string][]*change{}
	for _, c := range changes {
		kinds[c.kind] = append(kinds[c.kind], c)
	}
	for _, list := range kinds {
		slices.SortFunc(list, func(a, b *change) int { return cmp.Compare(rank(a.key()), rank(b.key())) })
	}
	names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Compare(rank(changes[0].place+a), rank(changes[0].place+b))
	})
	for turn := 0; len(drawn) < len(changes); turn++ {
		for _, name := range names {
			if list := kinds[name]; turn < len(list) {
				drawn = append(drawn, list[turn])
			}
		}
	}
	return drawn
}

// overlaps reports whether two changes cannot be compiled together.
func (c *change) overlaps(o *change) bool {
	return c.file == o.file && c.start <= o.end && o.start <= c.end
}
