package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// guess is what is added to the error about an unknown word: which of names may have been meant, as
// kong says it of flags.
func guess(word string, names []string) string {
	var near []string
	for _, name := range names {
		if word != "" && strings.HasPrefix(name, word) || edits(word, name) <= 2 {
			near = append(near, fmt.Sprintf("%q", name))
		}
	}
	switch slices.Sort(near); len(near) {
	case 0:
		return ""
	case 1:
		return ", did you mean " + near[0] + "?"
	}
	return ", did you mean one of " + strings.Join(near, ", ") + "?"
}

// edits is how many letters must be put in, left out or changed to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1) // of the letters of a so far, to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// guessArgument is what is added to the error about an argument that is not expected: a command, or
// an address without its flag. asked is the command that was given, nil for none.
func guessArgument(text string, asked, program *kong.Node) string {
	word, found := strings.CutPrefix(text, "unexpected argument ")
	if !found {
		return ""
	}
	if strings.Contains(word, ":") {
		flag := "upstream"
		if asked != nil && slices.ContainsFunc(asked.Flags,
			func(f *kong.Flag) bool { return f.Name == "url" }) {
			flag = "url"
		}
		if !strings.Contains(word, "://") {
			word = "redis://" + word
		}
		return fmt.Sprintf(", did you mean --%s=%s?", flag, word)
	}
	if asked != nil && asked != program.DefaultCmd {
		return ""
	}
	names := []string{"help", "version"} // asFlags
	for _, cmd := range program.Children {
		if !cmd.Hidden {
			names = append(names, cmd.Name)
		}
	}
	return guess(word, names)
}
