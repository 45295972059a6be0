package main

import (
	"strings"
	"testing"
)

func TestReportKeepsToItsColumns(t *testing.T) {
	words := strings.Repeat("ten words ", 15)
	row := "| " + words + "|\n| " + words + "|\n"
	got := wrap("# Title\n\n" + words + "\n\n- " + words + "\n- short\n- " + words + "\n\n" + row +
		"\nshort\nlines\n")
	for line := range strings.Lines(got) {
		if len(line) > columns+1 && !strings.HasPrefix(line, "|") {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	for _, want := range []string{"# Title\n\nten words ten", "\n\n- ten words", "ten\n  words",
		"\n- short\n- ten", row, "\nshort\nlines\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
	if strings.Count(got, "words") != 15*5 {
		t.Errorf("words are lost:\n%s", got)
	}
}
