package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand is lockproxy completion: it prints a shell's completion script.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is printed below the command's help line.
func (c *completionCommand) Help() string {
	return "In a running bash: source <(lockproxy completion bash). " +
		"The Debian package installs it for all three shells."
}

func (c *completionCommand) execute(stdout, stderr io.Writer) int {
	parser, err := newParser(&program{}, io.Discard, func(int) {})
	if err != nil {
		fmt.Fprintf(stderr, "lockproxy completion: %v\n", err)
		return exitFailure
	}
	write := map[string]func(io.Writer, *kong.Application){
		"bash": completeBash, "zsh": completeZsh, "fish": completeFish,
	}[c.Shell]
	write(stdout, parser.Model)
	return 0
}

// flagsOf are the flags that a command takes.
func flagsOf(cmd *kong.Node) (flags []*kong.Flag) {
	for _, group := range cmd.AllFlags(true) {
		flags = append(flags, group...)
	}
	return flags
}

// choices are the values of a flag or argument that has few; isFile reports whether it names a
// file.
func choices(v *kong.Value) string { return strings.ReplaceAll(v.Enum, ",", " ") }

func isFile(f *kong.Flag) bool { return f.PlaceHolder == "FILE" || f.PlaceHolder == "PATH" }

var endOfSummary = regexp.MustCompile(`[.:;(].*|, such as.*`)

// summary is the beginning of a help text, without characters that mean something to shells.
func summary(help string) string {
	text := endOfSummary.ReplaceAllString(help, "")
	return strings.TrimSpace(strings.NewReplacer("'", "", "[", "", "]", "").Replace(text))
}

func completeBash(out io.Writer, program *kong.Application) {
	var names, values, words strings.Builder
	for _, cmd := range program.Children {
		fmt.Fprintf(&names, " %s", cmd.Name)
		expected := ""
		for _, flag := range flagsOf(cmd) {
			expected += " --" + flag.Name
			switch {
			case flag.IsBool():
			case flag.Enum != "":
				fmt.Fprintf(&values, "\t%s--%s) words='%s' ;;\n", cmd.Name, flag.Name,
					choices(flag.Value))
			case isFile(flag):
				fmt.Fprintf(&values, "\t%s--%s) _lockproxy_files; return ;;\n", cmd.Name, flag.Name)
			default:
				fmt.Fprintf(&values, "\t%s--%s) return ;;\n", cmd.Name, flag.Name)
			}
		}
		for _, arg := range cmd.Positional {
			if arg.Enum != "" {
				expected = choices(arg)
			}
		}
		fmt.Fprintf(&words, "\t%s) words='%s' ;;\n", cmd.Name, strings.TrimSpace(expected))
	}
	fmt.Fprintf(out, `# Completion of lockproxy for bash.
_lockproxy_files() {
	local IFS=$'\n'
	compopt -o filenames 2>/dev/null
	COMPREPLY=($(compgen -f -- "$cur"))
}

_lockproxy() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=serve words='' i
	COMPREPLY=()
	if [[ $cur == = ]]; then cur=; fi
	if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
	if ((COMP_CWORD > 1)); then
		case ${COMP_WORDS[1]} in
		%[1]s) cmd=${COMP_WORDS[1]} ;;
		help) COMPREPLY=($(compgen -W '%[2]s' -- "$cur")); return ;;
		esac
	elif [[ $cur != -* ]]; then
		COMPREPLY=($(compgen -W '%[2]s help version' -- "$cur"))
		return
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [[ $cmd == run && ${COMP_WORDS[i]} == -- ]]; then
			if ((i < COMP_CWORD - 1)); then _lockproxy_files; return; fi
			COMPREPLY=($(compgen -c -- "$cur"))
			return
		fi
	done
	case $cmd in
%[3]s	esac
	case $cmd$prev in
%[4]s	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _lockproxy lockproxy
`, strings.ReplaceAll(names.String()[1:], " ", "|"), names.String()[1:], &words, &values)
}

func completeZsh(out io.Writer, program *kong.Application) {
	fmt.Fprint(out, `#compdef lockproxy
# Completion of lockproxy for zsh.
compdef _lockproxy lockproxy

_lockproxy() {
	local cmd=serve
	local -a subcommands flags
	subcommands=(
`)
	for _, cmd := range program.Children {
		fmt.Fprintf(out, "\t\t'%s:%s'\n", cmd.Name, summary(cmd.Help))
	}
	fmt.Fprint(out, `	)
	if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
		_describe command subcommands
		return
	fi
	if ((${subcommands[(I)$words[2]:*]})); then
		cmd=$words[2]
		shift words
		((CURRENT--))
	fi
	case $cmd in
`)
	for _, cmd := range program.Children {
		fmt.Fprintf(out, "\t%s) flags=(\n", cmd.Name)
		for _, flag := range flagsOf(cmd) {
			value := "=[" + summary(flag.Help) + "]:" + flag.FormatPlaceHolder() + ":"
			switch {
			case flag.IsBool():
				value = "[" + summary(flag.Help) + "]"
			case flag.Enum != "":
				value += "(" + choices(flag.Value) + ")"
			case isFile(flag):
				value += "_files"
			default:
				value += " "
			}
			fmt.Fprintf(out, "\t\t'--%s%s'\n", flag.Name, value)
		}
		for _, arg := range cmd.Positional {
			if arg.Enum != "" {
				fmt.Fprintf(out, "\t\t':%s:(%s)'\n", arg.Name, choices(arg))
			} else {
				fmt.Fprintf(out, "\t\t'*::%s:_normal'\n", arg.Name)
			}
		}
		fmt.Fprint(out, "\t) ;;\n")
	}
	fmt.Fprint(out, `	esac
	_arguments $flags
}

if [[ $funcstack[1] == _lockproxy ]]; then _lockproxy; fi
`)
}

func completeFish(out io.Writer, program *kong.Application) {
	fmt.Fprint(out, "# Completion of lockproxy for fish.\ncomplete -c lockproxy -f\n")
	var others []string
	for _, cmd := range program.Children {
		fmt.Fprintf(out, "complete -c lockproxy -n __fish_use_subcommand -a %s -d '%s'\n", cmd.Name,
			summary(cmd.Help))
		if cmd != program.DefaultCmd {
			others = append(others, cmd.Name)
		}
	}
	for _, cmd := range program.Children {
		on := "__fish_seen_subcommand_from " + cmd.Name
		if cmd == program.DefaultCmd {
			on = "not __fish_seen_subcommand_from " + strings.Join(others, " ")
		}
		for _, flag := range flagsOf(cmd) {
			value := " -x"
			switch {
			case flag.IsBool():
				value = ""
			case flag.Enum != "":
				value = " -x -a '" + choices(flag.Value) + "'"
			case isFile(flag):
				value = " -r -F"
			}
			fmt.Fprintf(out, "complete -c lockproxy -n '%s' -l %s%s -d '%s'\n", on, flag.Name,
				value, summary(flag.Help))
		}
		for _, arg := range cmd.Positional {
			if arg.Enum != "" {
				fmt.Fprintf(out, "complete -c lockproxy -n '%s' -a '%s'\n", on, choices(arg))
			} else {
				fmt.Fprintf(out, "complete -c lockproxy -n '%s' -F\n", on)
			}
		}
	}
}
