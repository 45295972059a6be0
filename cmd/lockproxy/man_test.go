package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"lockproxy/lockcmd/syntax"
)

var updateMan = flag.Bool("update-man", false, "write deploy/lockproxy.1 again")

const manFile = "../../deploy/lockproxy.1"

// The manual page is what kong knows of the flags, with the words below; it is kept in the tree,
// for packages.
func TestManualPage(t *testing.T) {
	want := manualPage(t)
	if *updateMan {
		if err := os.WriteFile(manFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(manFile)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the flags are now: run go test ./cmd/lockproxy -run "+
			"TestManualPage -args -update-man (%v)", manFile, err)
	}
	for _, word := range []string{".SH SYNOPSIS", `\fB\-\-max\-clients\fR=\fIN\fR`,
		`\fB\-\-kill\-after\fR`, `\fB\-\-json\fR`, ".SH EXIT STATUS", "LOCKPROXY_MAX_TIMEOUT"} {
		if !strings.Contains(string(got), word) {
			t.Errorf("%s lacks %s", manFile, word)
		}
	}
}

func manualPage(t *testing.T) string {
	parser, err := newParser(&program{}, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString(`.\" Made from the flags: `)
	fmt.Fprintf(&page, `go test ./cmd/lockproxy -run TestManualPage -args -update-man
.TH LOCKPROXY 1 "" "lockproxy" "User Commands"
.SH NAME
lockproxy \- a Redis proxy with locks
.SH SYNOPSIS
.B lockproxy
[\fBserve\fR] [\fIflags\fR]
`)
	for _, cmd := range parser.Model.Children {
		if cmd == parser.Model.DefaultCmd || cmd.Hidden {
			continue
		}
		fmt.Fprintf(&page, ".br\n.B lockproxy %s\n%s[\\fIflags\\fR]%s\n", cmd.Name, required(cmd),
			positionals(cmd))
	}
	fmt.Fprintf(&page, ".SH DESCRIPTION\n%s\n%s", roff(description), manIntroduction())
	for _, cmd := range parser.Model.Children {
		if cmd.Hidden {
			continue
		}
		fmt.Fprintf(&page, ".SH \"LOCKPROXY %s\"\n%s\n", strings.ToUpper(cmd.Name), roff(cmd.Help))
		if cmd.Detail != "" {
			fmt.Fprintf(&page, ".PP\n%s\n", roff(cmd.Detail))
		}
		if cmd.Name == "check" {
			fmt.Fprintf(&page, ".PP\nBesides the flags of serving:\n")
		}
		writeFlags(&page, cmd)
	}
	page.WriteString(manEnd)
	return page.String()
}

// writeFlags writes one paragraph a flag, group by group.
func writeFlags(page *strings.Builder, cmd *kong.Node) {
	serving := map[string]bool{}
	if cmd.Name == "check" {
		for _, flag := range cmd.Parent.DefaultCmd.Flags {
			serving[flag.Name] = true
		}
	}
	group := ""
	for _, flag := range cmd.Flags {
		if flag.Name == "help" || flag.Hidden || serving[flag.Name] {
			continue
		}
		if flag.Group != nil && flag.Group.Title != group && cmd.Name != "check" {
			group = flag.Group.Title
			fmt.Fprintf(page, ".SS %s\n", roff(group))
		}
		short := ""
		if flag.Short != 0 {
			short = fmt.Sprintf(`\fB\-%c\fR, `, flag.Short)
		}
		value := ""
		if !flag.IsBool() {
			value = "=\\fI" + roff(flag.FormatPlaceHolder()) + "\\fR"
		}
		fmt.Fprintf(page, ".TP\n%s\\fB\\-\\-%s\\fR%s\n%s\n", short, roff(flag.Name), value,
			roff(flag.Help))
	}
}

func required(cmd *kong.Node) (text string) {
	for _, flag := range cmd.Flags {
		if flag.Required {
			text += fmt.Sprintf(`\fB\-\-%s\fR=\fI%s\fR `, roff(flag.Name),
				roff(flag.FormatPlaceHolder()))
		}
	}
	return text
}

func positionals(cmd *kong.Node) (text string) {
	for _, arg := range cmd.Positional {
		if arg.Enum != "" {
			text += " " + strings.ReplaceAll(arg.Enum, ",", "|")
			continue
		}
		text += " [\\fB\\-\\-\\fR] \\fI" + roff(arg.Name) + "\\fR [\\fIarguments\\fR]"
	}
	return text
}

// roff writes text so that troff prints just it.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// manIntroduction lists the lock commands.
func manIntroduction() string {
	var page strings.Builder
	page.WriteString(".PP\nClients see the lock commands as commands of Redis; " +
		"\\fBLOCK HELP\\fR explains them:\n.PP\n.nf\n")
	for i := range syntax.Specs {
		page.WriteString(roff(syntax.Specs[i].Usage()) + "\n")
	}
	return page.String() + ".fi\n"
}

const manEnd = `.SH EXIT STATUS
0 if it was ended by SIGTERM or SIGINT, or if there was nothing else to do;
1 if what was asked can't be done;
2 if it makes no sense.
\fBlockproxy run\fR has its own, see there;
\fBlockproxy check\fR exits with 1 if a line says FAIL, or the configuration isn't valid.
.SH SIGNALS
.TP
SIGTERM, SIGINT
Let running commands finish, for \-\-shutdown\-timeout at most, and end. A second one ends at once.
.TP
SIGHUP
Read the configuration file and the files of TLS again.
What is not valid changes nothing;
the log says what has changed, and what needs a restart.
.SH FILES
.TP
/etc/lockproxy/lockproxy.toml
The configuration file that the service of the Debian package names with \-\-config:
TOML, with the names of flags.
.SH EXAMPLES
.nf
lockproxy \-\-upstream redis://127.0.0.1:6379
lockproxy run \-\-key nightly\-report \-\-quiet \-E 0 \-\- /usr/local/bin/report
redis\-cli \-p 6380 LOCK job 60 WAIT 10
.fi
.SH SEE ALSO
.BR redis\-server (1),
.BR redis\-cli (1)
`
