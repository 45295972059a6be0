package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var settingsRow = regexp.MustCompile(
	"(?m)^\\| `--([a-z-]+)` `([A-Z_]+)` \\| (\\S+) \\| (.+?) \\| (.*) \\|$|^## (.*)$")

// settingsRows are the rows of docs/settings.md, by the names of flags.
func settingsRows(t *testing.T) map[string]struct{ env, value, example, when, group string } {
	t.Helper()
	page, err := os.ReadFile(repository + "/docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]struct{ env, value, example, when, group string }{}
	group := ""
	for _, m := range settingsRow.FindAllStringSubmatch(string(page), -1) {
		if m[6] != "" {
			group = m[6]
			continue
		}
		if _, twice := rows[m[1]]; twice {
			t.Errorf("--%s has two rows", m[1])
		}
		rows[m[1]] = struct{ env, value, example, when, group string }{m[2], m[3], m[4], m[5],
			group}
	}
	return rows
}

// docs/settings.md has a row for each flag of serving, and only for those, in the group that help
// has it in: with its variable, its default, and a line that the configuration file may have. It
// marks what SIGHUP takes over.
func TestSettingsAreDocumented(t *testing.T) {
	rows := settingsRows(t)
	parser, err := newParser(&program{}, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	flags := parser.Model.DefaultCmd.Flags
	defaults := parsed(t)
	for _, flag := range flags {
		row, found := rows[flag.Name]
		if flag.Name == "help" || flag.Hidden {
			continue
		}
		if delete(rows, flag.Name); !found {
			t.Errorf("docs/settings.md lacks --%s", flag.Name)
			continue
		}
		value := "none"
		switch {
		case flag.Default != "":
			value = "`" + flag.Default + "`"
		case flag.IsBool():
			value = "`false`"
		}
		if row.env != flag.Envs[0] || row.value != value || row.group != flag.Group.Title {
			t.Errorf("--%s is said to be %+v: want %s, %s, %s", flag.Name, row, flag.Envs[0], value,
				flag.Group.Title)
		}
		if flag.Name != "config" {
			takenOver := exampleIsTakenOver(t, defaults, flag.Name,
				strings.Trim(row.example, "`"))
			if marked := strings.HasPrefix(row.when, "**R** "); marked != takenOver {
				t.Errorf("--%s: SIGHUP takes it over: %v, and the page says %v", flag.Name,
					takenOver, marked)
			}
		}
	}
	for name := range rows {
		t.Errorf("docs/settings.md has --%s, which is no flag of serving", name)
	}
}

// exampleIsTakenOver reads a line of a configuration file, which must set just this, to something
// else than the default, and reports whether SIGHUP would take it over.
func exampleIsTakenOver(t *testing.T, before *options, name, example string) bool {
	t.Helper()
	after := parsed(t, "--config", configFile(t, example))
	after.Config = ""
	if name == "tls-cert" {
		after = parsed(t, "--tls-cert=cert.pem")
	}
	if changed := difference(before, after); !slices.Equal(changed, []string{name}) {
		t.Errorf("%s sets %q", example, changed)
	}
	next := before.with(after)
	return slices.Contains(difference(before, &next), name)
}

// parsed is what a command line asks for.
func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	asked := &program{}
	parser, err := newParser(asked, io.Discard, func(int) {})
	if err == nil {
		_, err = parser.Parse(append([]string{"--tls-cert=of-others.pem"}, args...))
	}
	if err != nil {
		t.Errorf("%q: %v", args, err)
	}
	return &asked.Serve.options
}
