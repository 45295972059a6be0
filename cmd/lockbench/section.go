package main

import (
	"fmt"
	"strings"
)

// section is a part of a report: a table with what must be known to read it, and figures that show
// it.
type section struct {
	title   string
	before  string // paragraphs
	header  []string
	rows    [][]string
	figures []figure
}

// figure is drawn into its own file.
type figure struct {
	name    string // of the file: after the document's, and without .svg
	alt     string // for those who can't see it
	drawing interface{ SVG() []byte }
}

func (f figure) file(document string) string { return document + "-" + f.name + ".svg" }

func (s *section) row(cells ...string) { s.rows = append(s.rows, cells) }

// markdown shows the figures too if it is given the name of the document, which theirs begin with.
func (s *section) markdown(document string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n", s.title)
	if text := strings.TrimSpace(s.before); text != "" {
		fmt.Fprintf(&b, "%s\n\n", text)
	}
	if document != "" {
		for _, f := range s.figures {
			fmt.Fprintf(&b, "![%s](%s)\n\n", f.alt, f.file(document))
		}
	}
	b.WriteString(s.table())
	return b.String()
}

func (s *section) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(s.header, " | "),
		"---|"+strings.Repeat("---:|", len(s.header)-1))
	for _, row := range s.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}
