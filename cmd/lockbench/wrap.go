package main

import (
	"strings"
	"unicode/utf8"
)

// columns is how long a line of a report gets, tables and figures aside.
const columns = 100

// wrap breaks the lines of a report's paragraphs and lists that are longer than columns.
func wrap(report string) string {
	var b strings.Builder
	for block := range strings.SplitAfterSeq(report, "\n\n") {
		if strings.HasPrefix(block, "|") || strings.HasPrefix(block, "!") {
			b.WriteString(block)
			continue
		}
		text := strings.TrimRight(block, "\n")
		for i, item := range strings.Split(text, "\n- ") {
			if i > 0 {
				b.WriteString("\n- ")
			}
			indent := ""
			if i > 0 || strings.HasPrefix(item, "- ") {
				indent = "  "
			}
			wrapItem(&b, item, indent, 2*min(i, 1))
		}
		b.WriteString(block[len(text):])
	}
	return b.String()
}

// wrapItem writes a paragraph or list item, of which used columns are taken already. One whose
// lines are short enough stays as it is.
func wrapItem(b *strings.Builder, item, indent string, used int) {
	long := false
	for line := range strings.SplitSeq(item, "\n") {
		long = long || utf8.RuneCountInString(line) > columns-used
	}
	if !long {
		b.WriteString(item)
		return
	}
	for i, word := range strings.Fields(item) {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+length > columns:
			b.WriteString("\n" + indent)
			used = len(indent)
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += length
	}
}
