package main

import (
	"os"
	"testing"

	"lockproxy/internal/test/testwait"
)

// A command that reads from the terminal is stopped by the kernel: that is said, with the flag that
// lets it read, and Ctrl-C ends it as it ends others.
func TestRunSaysThatTheTerminalHasStoppedIt(t *testing.T) {
	s := serveRuns(t)
	t.Setenv(asProgram, "1")
	t.Setenv("LOCKPROXY_URL", s.url)
	script := []string{"--", "sh", "-c", "read line && echo it is $line"}
	run := append([]string{"run", "--key", "job"}, script...)
	stopped := startInTerminal(t, os.Args[0], run...)
	stopped.types("", "lockproxy run: sh was stopped because it uses the terminal: run it with "+
		"--foreground")
	if s.field("token") == "" {
		t.Error("the lock is free")
	}
	stopped.types("\x03", "^C")
	testwait.Until(t, "the lock is free", func() bool { return s.field("token") == "" })

	run = append([]string{"run", "--key", "job", "--foreground"}, script...)
	startInTerminal(t, os.Args[0], run...).types("here\r", "it is here")
}
