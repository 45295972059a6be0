package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

var flagInHelp = regexp.MustCompile(`(?m)^ +(?:-\w, +)?--([a-z-]+)`)

// helpOf is what a command line prints; it must end well.
func helpOf(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(args, &out, &errs); status != 0 || errs.Len() > 0 {
		t.Errorf("%v: status %d\n%s", args, status, &errs)
	}
	return out.String()
}

// --help shows the flags that people need, and --help-all every one.
func TestHelpIsShort(t *testing.T) {
	short, all := helpOf(t, "--help"), helpOf(t, "--help-all")
	if n := len(flagInHelp.FindAllString(short, -1)); n < 20 || n > 30 {
		t.Errorf("--help shows %d flags: want at most 30", n)
	}
	if !strings.Contains(short, "--help-all.") {
		t.Error("--help doesn't name --help-all at its end")
	}
	for name := range valuesOf(&options{}) {
		if !strings.Contains(all, "--"+name) {
			t.Errorf("--help-all doesn't show --%s", name)
		}
	}
	for _, command := range []string{"run", "check", "top"} {
		if !regexp.MustCompile(`(?m)^       lockproxy ` + command + ` .*\.$`).MatchString(short) {
			t.Errorf("--help doesn't say what %s is for:\n%s", command, short)
		}
	}
}

func TestHelpAndVersionAreCommands(t *testing.T) {
	for _, c := range []struct{ words, flags []string }{
		{[]string{"help"}, []string{"--help"}},
		{[]string{"help", "run"}, []string{"run", "--help"}},
		{[]string{"help", "check"}, []string{"check", "--help"}},
		{[]string{"version"}, []string{"--version"}},
	} {
		if got, want := helpOf(t, c.words...), helpOf(t, c.flags...); got != want {
			t.Errorf("%v prints\n%s\nand %v\n%s", c.words, got, c.flags, want)
		}
	}
	if help := helpOf(t, "run", "--help-all"); !strings.HasPrefix(help,
		"Usage: lockproxy run --key=NAME [flags] -- command [arguments]\n") {
		t.Errorf("run --help-all:\n%s", help)
	}
	for _, command := range [][]string{{"run", "--key", "k", "--", "help"}, {"help", "nothing"}} {
		if _, err := parse(command, &bytes.Buffer{}); (err == nil) != (command[0] == "run") {
			t.Errorf("%v: %v", command, err)
		}
	}
}

// An error leads to the help of the command that it is about.
func TestUsageErrorsNameTheirHelp(t *testing.T) {
	for line, help := range map[string]string{
		"--nope": "lockproxy --help", "serve --nope": "lockproxy --help",
		"check --nope": "lockproxy check --help", "top --nope": "lockproxy top --help",
		"run -- true": "lockproxy run --help", "run --key a --nope true": "lockproxy run --help",
		"run --key a --wait=x true": "lockproxy run --help",
	} {
		_, err := parse(strings.Fields(line), &bytes.Buffer{})
		if err == nil || !strings.HasSuffix(err.Error(), "; see "+help) {
			t.Errorf("%s: %v, want it to end with %q", line, err, help)
		}
	}
}
