package commands

import (
	"slices"
	"strings"
	"testing"
)

// Where a number of keys is wrong there are no keys, as Redis sees it: a node says what is wrong.
func TestWrongNumbersOfKeys(t *testing.T) {
	for request, want := range map[string][]int{
		"LMPOP 99 a b LEFT":              nil,
		"LMPOP 3 a b LEFT":               {2, 3, 4}, // LEFT can be a key
		"LMPOP 2 a b LEFT":               {2, 3},
		"LMPOP -1 a b LEFT":              nil,
		"BLMPOP 0 99 a b LEFT":           nil,
		"BLMPOP 0 2 a b LEFT":            {3, 4},
		"ZUNIONSTORE d 99 a b":           nil,
		"ZUNIONSTORE d 2 a b":            {1, 3, 4},
		"EVAL script 9 a b":              nil,
		"EVAL script 1 a b":              {3},
		"MSETEX 2 a 1 b":                 nil,
		"MSETEX 2 a 1 b 2":               {2, 4},
		"XREAD STREAMS a b 0":            nil,
		"XREAD STREAMS a b 0 0":          {2, 3},
		"XREADGROUP GROUP g c STREAMS a": nil,
	} {
		var args [][]byte
		for word := range strings.FieldsSeq(request) {
			args = append(args, []byte(word))
		}
		if got := Find(args[0]).For(args).Keys.Positions(args, nil); !slices.Equal(got, want) {
			t.Errorf("%s: keys at %v, not %v", request, got, want)
		}
	}
}
