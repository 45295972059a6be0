package commands

import (
	"bytes"
	"slices"
	"strings"

	"lockproxy/internal/resp"
)

// Keys says which arguments of a command are keys. The zero value says that none are.
type Keys struct {
	// First, Last and Step are as in Redis's COMMAND: positions from the command's name, which is
	// 0; a negative Last counts from the end.
	First, Last, Step int
	// find is for commands whose keys are not at fixed places. It appends their positions to at.
	find func(args [][]byte, at []int) []int
}

func at(first, last, step int) Keys { return Keys{First: first, Last: last, Step: step} }

func found(by func(args [][]byte, at []int) []int) Keys { return Keys{find: by} }

// Any reports whether the command has keys.
func (k *Keys) Any() bool { return k.First > 0 || k.find != nil }

// Movable reports whether the positions of the keys depend on arguments.
func (k *Keys) Movable() bool { return k.find != nil }

// Positions appends the positions of a request's keys to at. A request with too few arguments has
// the keys that are there.
func (k *Keys) Positions(args [][]byte, at []int) []int {
	if k.find != nil {
		return k.find(args, at)
	}
	if k.First == 0 {
		return at
	}
	last := k.Last
	if last < 0 {
		last += len(args)
	}
	for i := k.First; i <= last && i < len(args); i += k.Step {
		at = append(at, i)
	}
	return at
}

// Match reports whether a key of a request satisfies match. It allocates only for movable keys.
func (k *Keys) Match(args [][]byte, match func(key []byte) bool) bool {
	if k.find == nil {
		last := k.Last
		if last < 0 {
			last += len(args)
		}
		for i := k.First; i > 0 && i <= last && i < len(args); i += k.Step {
			if match(args[i]) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(k.find(args, nil), func(i int) bool { return match(args[i]) })
}

// counted is for commands that say at position n how many keys follow.
func counted(n int) func(args [][]byte, at []int) []int {
	return func(args [][]byte, at []int) []int {
		for i := range count(args, n, 1) {
			at = append(at, n+1+i)
		}
		return at
	}
}

// count reads the number at position n of what follows, each of so many arguments. It is 0 if there
// are not as many: like Redis, the commands have no keys then.
func count(args [][]byte, n, width int) int {
	if n >= len(args) {
		return 0
	}
	keys, _ := resp.ParseInt(args[n])
	if keys > int64(len(args)-n-1)/int64(width) {
		return 0
	}
	return int(max(keys, 0))
}

// destinationAnd is for commands that also have a key right behind the name.
func destinationAnd(find func([][]byte, []int) []int) func([][]byte, []int) []int {
	return func(args [][]byte, at []int) []int {
		before := len(at)
		if at = find(args, at); len(at) > before {
			at = slices.Insert(at, before, 1)
		}
		return at
	}
}

// streams is for XREAD and XREADGROUP: behind STREAMS come the keys and as many ids. If these are
// not as many, there are no keys.
func streams(args [][]byte, at []int) []int {
	i := 1
	if len(args) > 1 && bytes.EqualFold(args[0], []byte("xreadgroup")) {
		i = 4 // GROUP group consumer: names that can be any word
	}
	for ; i < len(args); i++ {
		if bytes.EqualFold(args[i], []byte("streams")) {
			ids := len(args) - i - 1
			for j := i + 1; ids%2 == 0 && j <= i+ids/2; j++ {
				at = append(at, j)
			}
			return at
		}
	}
	return at
}

// keyAnd is for commands with a key as first argument, and one behind each of words, which come from
// the fifth on: those before, such as GEORADIUSBYMEMBER's member, can be any word.
func keyAnd(words ...string) func(args [][]byte, at []int) []int {
	return func(args [][]byte, at []int) []int {
		if len(args) > 1 {
			at = append(at, 1)
		}
		for _, word := range words {
			for i := 5; i+1 < len(args); i++ {
				if strings.EqualFold(word, string(args[i])) {
					at = append(at, i+1)
					break
				}
			}
		}
		return at
	}
}

// sorted is for SORT: its key, and what follows the last STORE that is not a pattern.
func sorted(args [][]byte, at []int) []int {
	if len(args) > 1 {
		at = append(at, 1)
	}
	store := 0
	for i := 2; i+1 < len(args); i++ {
		switch strings.ToLower(string(args[i])) {
		case "limit":
			i += 2
		case "get", "by":
			i++
		case "store":
			i++
			store = i
		}
	}
	if store > 0 {
		at = append(at, store)
	}
	return at
}

// migrated is for MIGRATE, whose key is at the third place or, if that is empty, behind KEYS.
func migrated(args [][]byte, at []int) []int {
	if len(args) <= 3 {
		return at
	}
	if len(args[3]) > 0 {
		return append(at, 3)
	}
	for i := 6; i < len(args); i++ {
		switch {
		case bytes.EqualFold(args[i], []byte("auth")):
			i++
		case bytes.EqualFold(args[i], []byte("auth2")):
			i += 2
		case bytes.EqualFold(args[i], []byte("keys")):
			for j := i + 1; j < len(args); j++ {
				at = append(at, j)
			}
			return at
		}
	}
	return at
}

// countedPairs is for MSETEX numkeys key value ….
func countedPairs(args [][]byte, at []int) []int {
	for i := range count(args, 1, 2) {
		at = append(at, 2+2*i)
	}
	return at
}
