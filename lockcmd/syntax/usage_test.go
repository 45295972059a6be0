package syntax

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var optionInUsage = regexp.MustCompile(`\b([A-Z]+)(?: ([a-z|]+)\b)?`)

// COMMAND DOCS, and with it LOCK HELP, the manual page and the documentation, has the options that
// are taken, with the values that they take.
func TestUsageHasTheOptionsThatAreTaken(t *testing.T) {
	for name, known := range map[string]optionSet{"lock": lockOptions, "lockall": lockAllOptions,
		"once": onceOptions, "done": doneOptions, "relock": relockOptions, "lockscan": scanOptions, "locktop": topOptions,
		"locklog": logOptions} {
		i := slices.IndexFunc(Specs, func(c Spec) bool { return c.Name == name })
		usage := Specs[i].Usage()
		_, arguments, _ := strings.Cut(usage, " ")
		var shown optionSet
		for _, m := range optionInUsage.FindAllStringSubmatch(arguments, -1) {
			shown = append(shown, option{m[1], m[2]})
		}
		if !slices.Equal(shown, known) {
			t.Errorf("%s shows %v, want %v", usage, shown, known)
		}
	}
}

// LOCK HELP has each command's usage, and explains it.
func TestHelpExplainsEachCommand(t *testing.T) {
	help := "\n" + HelpText()
	for i := range Specs {
		usage := "\n" + fold(Specs[i].Usage()) + "\n    "
		if strings.Count(help, usage) != 1 {
			t.Errorf("LOCK HELP lacks %q:\n%s", usage, help)
		}
	}
	for line := range strings.Lines(help) {
		if len(line) > 90 {
			t.Errorf("too long for a terminal: %q", line)
		}
	}
}
