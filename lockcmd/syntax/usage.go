package syntax

import (
	_ "embed"
	"strings"
	"sync"
)

// Usage is the command with its arguments, as people write it. It is made from docs.json; LOCK HELP
// and the manual page have it from here, and tests compare the pages in docs with it.
func (c *Spec) Usage() string {
	words := []string{strings.ToUpper(c.Name)}
	for _, argument := range docs().get(c.Name).get("doc").get("arguments").Elems {
		words = append(words, docValue{argument}.usage())
	}
	return strings.Join(words, " ")
}

// usage is an argument in COMMAND DOCS, as people write it.
func (v docValue) usage() string {
	var parts []string
	for _, part := range v.get("arguments").Elems {
		parts = append(parts, docValue{part}.usage())
	}
	text, token := v.text("display_text"), v.text("token")
	switch v.text("type") {
	case "pure-token":
		text, token = token, ""
	case "block":
		text = strings.Join(parts, " ")
	case "oneof":
		text = strings.Join(parts, " | ")
		if token != "" { // its alternatives are values
			text = strings.ToLower(strings.Join(parts, "|"))
		}
	}
	text = strings.TrimPrefix(token+" "+text, " ")
	if v.has("flags", "multiple") {
		text += " [" + text + " ...]"
	}
	if v.has("flags", "optional") {
		text = "[" + text + "]"
	}
	return text
}

// helpSource is LOCK HELP, in which the name of a command stands for its usage.
//
//go:embed help.txt
var helpSource string

// HelpText is LOCK HELP, a line for each of its reply.
var HelpText = sync.OnceValue(func() string {
	usages := map[string]string{}
	for i := range Specs {
		usages[strings.ToUpper(Specs[i].Name)] = fold(Specs[i].Usage())
	}
	lines := strings.Split(helpSource, "\n")
	for i, line := range lines {
		if usage, ok := usages[line]; ok {
			lines[i] = usage
		}
	}
	return strings.Join(lines, "\n")
})

// fold breaks a usage into lines that fit a terminal, before an option.
func fold(usage string) string {
	const columns = 80
	if len(usage) <= columns {
		return usage
	}
	at := strings.LastIndex(usage[:columns+1], " [")
	return usage[:at] + "\n    " + fold(usage[at:])
}
