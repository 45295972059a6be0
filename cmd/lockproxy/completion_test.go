package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completer completes command lines in a real bash, which has sourced what lockproxy prints.
func completer(t *testing.T) func(line string) []string {
	dir := t.TempDir()
	script := filepath.Join(dir, "lockproxy")
	if err := os.WriteFile(script, []byte(helpOf(t, "completion", "bash")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "my file.toml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// As bash does on TAB: "=" is a word, see COMP_WORDBREAKS.
	const tab = `source "$0" || exit
line=${1//=/ = }
read -ra COMP_WORDS <<<"$line"
[[ $1 != *' ' ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p lockproxy | sed 's/.*-F \([^ ]*\).*/\1/')
((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"`
	return func(line string) []string {
		t.Helper()
		cmd := exec.Command("bash", "--noprofile", "--norc", "-c", tab, script, line)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	}
}

func TestCompletionInBash(t *testing.T) {
	complete := completer(t)
	for _, c := range []struct{ line, want string }{
		{"lockproxy ", "serve run check top completion help version"},
		{"lockproxy c", "check completion"},
		{"lockproxy --log-l", "--log-level"},
		{"lockproxy --log-level ", "trace debug info warn error off"},
		{"lockproxy --log-level=", "trace debug info warn error off"},
		{"lockproxy --log-level=d", "debug"},
		{"lockproxy serve --upstream-mode s", "shared"},
		{"lockproxy check --js", "--json"},
		{"lockproxy run --js", ""},
		{"lockproxy run --ke", "--key"},
		{"lockproxy run --key ", ""},
		{"lockproxy --config m", "my file.toml"},
		{"lockproxy --config=m", "my file.toml"},
		{"lockproxy run --key a -- tru", "true"},
		{"lockproxy run --key a -- cat m", "my file.toml"},
		{"lockproxy completion ", "bash zsh fish"},
		{"lockproxy help to", "top"},
	} {
		got := complete(c.line)
		if c.want == "true" { // there are others that begin so
			if !slices.Contains(got, c.want) {
				t.Errorf("%q: %q, want %q among them", c.line, got, c.want)
			}
		} else if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
	if got := complete("lockproxy --"); len(got) < 40 || !slices.Contains(got, "--help-all") {
		t.Errorf("%d flags: %q", len(got), got)
	}
}

// The completion of each shell has every flag of serving.
func TestCompletionKnowsEveryFlag(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := helpOf(t, "completion", shell)
		for name := range valuesOf(&options{}) {
			if !strings.Contains(script, "--"+name) && !strings.Contains(script, "-l "+name+" ") {
				t.Errorf("%s: no --%s", shell, name)
			}
		}
	}
}
