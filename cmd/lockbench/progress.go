package main

import (
	"fmt"
	"os"
)

// progress is the line on stderr that says what is being measured. On a terminal each line replaces
// the one before.
type progress struct {
	out         *os.File
	terminal    bool
	done, total int
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// step begins the next of total steps.
func (p *progress) step(format string, args ...any) {
	p.done++
	line := fmt.Sprintf("[%d/%d] ", p.done, p.total) + fmt.Sprintf(format, args...)
	if p.terminal {
		fmt.Fprintf(p.out, "\r\033[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// note says what is to be read later, too.
func (p *progress) note(format string, args ...any) {
	p.end()
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\033[K")
	}
}
