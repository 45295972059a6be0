package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// version is set by release builds: -ldflags "-X main.version=…".
var version = "dev"

// Exit statuses: the command has failed, and the command line is invalid.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.NumCPU() <= smallMachine {
		runtime.GOMAXPROCS(1)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// smallMachine is the most cores with which the proxy is faster on one of them: moving each reply
// between cores costs more than it brings (see docs/bench.md for how to measure it).
const smallMachine = 2

// program is the command line.
type program struct {
	Serve serveCommand `cmd:"" default:"withargs" help:"Serve clients of a Redis; the default."`
	Run   runCommand   `cmd:"" help:"Hold a lock while a command runs."`
	Check checkCommand `cmd:"" help:"Check the configuration and the Redis behind it."`
	Top   topCommand   `cmd:"" help:"Show the locks that are held, live in a terminal or once."`

	Completion completionCommand `cmd:"" help:"Print the completion script of a shell."`

	HelpAll helpAll `env:"-" help:"Show the rarely needed flags too."`
	Version bool    `env:"-" help:"Print the version and exit."`
}

// command is a subcommand with its flags.
type command interface {
	// execute returns the process's exit status.
	execute(stdout, stderr io.Writer) int
}

// checked is a command whose flags have rules beyond their types. check returns which are broken.
type checked interface{ check() error }

const description = "A Redis proxy with locks: forwards every command to the Redis behind it, " +
	"and adds LOCK, UNLOCK and their like. " +
	"Every flag of serving can be set as an environment variable, LOCKPROXY_ and its name in " +
	"capitals, as in LOCKPROXY_MAX_TIMEOUT, " +
	"or in a configuration file. Flags override the environment, which overrides the file."

// run is main without the process: it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	cmd, err := parse(args, stdout)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "lockproxy: %v\n", err)
		if cmd, ok := cmd.(interface{ usageStatus() int }); ok {
			return cmd.usageStatus()
		}
		return exitUsage
	case cmd == nil:
		return 0
	}
	return cmd.execute(stdout, stderr)
}

// parse reads flags and environment. The command is nil if help or the version was printed, or if
// an error leaves none.
func parse(args []string, stdout io.Writer) (command, error) {
	asked, exited := &program{}, false
	parser, err := newParser(asked, stdout, func(int) { exited = true })
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(asFlags(args))
	switch {
	case exited:
		return nil, nil
	case err != nil:
		node, name := selected(err)
		text := strings.Replace(err.Error(), " (from envar ", " (from ", 1) // kong's word
		meant := withoutPassword(guessArgument(text, node, parser.Model.Node))
		if flag := oneDash(args, parser.Model.Node); flag != "" {
			text = fmt.Sprintf("unknown flag -%s, did you mean --%s?", flag, flag)
		} else if flag := flagAsCommand(err); flag != "" {
			text = "unknown flag " + flag
		}
		text = asked.Serve.nameFile(shortFlag.ReplaceAllString(text, ""), args)
		return commandOf(node), fmt.Errorf("%s%s; see lockproxy%s --help", withoutPassword(text),
			meant, name)
	case asked.Version:
		fmt.Fprintln(stdout, "lockproxy", version)
		return nil, nil
	}
	asked.Serve.args = args
	cmd := commandOf(parsed.Selected())
	err = checkEnvironment(parser.Model.Node)
	if cmd, ok := cmd.(checked); ok && err == nil {
		err = cmd.check()
	}
	if err != nil {
		if text := asked.Serve.nameFile(err.Error(), args); text != err.Error() {
			err = errors.New(text)
		}
	}
	return cmd, err
}

// shortFlag is kong's guess that another flag of one letter was meant, which is no help.
var shortFlag = regexp.MustCompile(`, did you mean "-\w"\?`)

// oneDash is the first flag that was given with one dash where it takes two, or "".
func oneDash(args []string, program *kong.Node) string {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if arg == "--" {
			break
		}
		for _, node := range append(program.Children, program) {
			if len(name) > 1 && arg[0] == '-' && slices.ContainsFunc(node.Flags,
				func(f *kong.Flag) bool { return f.Name == name }) {
				return name
			}
		}
	}
	return ""
}

// flagAsCommand is the first word of the command that run was given, if that is a flag which run
// does not have, or "". The flags behind it were taken for the command's.
func flagAsCommand(err error) string {
	var failed *kong.ParseError
	if !errors.As(err, &failed) {
		return ""
	}
	for _, p := range failed.Context.Path {
		if p.Positional == nil {
			continue
		}
		words, _ := failed.Context.Value(p).Interface().([]string)
		if len(words) > 0 && words[0] != "--" && strings.HasPrefix(words[0], "-") {
			return words[0]
		}
	}
	return ""
}

// newParser returns a parser that fills asked from a command line. It prints help to stdout, and
// then calls exit.
func newParser(asked *program, stdout io.Writer, exit func(int)) (*kong.Kong, error) {
	parser, err := kong.New(asked, append(mappers(), kong.Name("lockproxy"),
		kong.Description(description), kong.DefaultEnvars("LOCKPROXY"),
		kong.Writers(stdout, io.Discard), kong.Exit(exit), kong.Help(printHelp),
		kong.ConfigureHelp(helpOptions))...)
	if err == nil {
		addFlagHelp(parser.Model.Node)
	}
	return parser, err
}

// selected is the command with the invalid arguments, or nil, and its name behind a space if that
// must be given.
func selected(err error) (node *kong.Node, name string) {
	var failed *kong.ParseError
	if !errors.As(err, &failed) || failed.Context.Selected() == nil {
		return nil, ""
	}
	if node = failed.Context.Selected(); node != failed.Context.Model.DefaultCmd {
		name = " " + node.Name
	}
	return node, name
}

// commandOf is the command that a node of the command line is about, nil of nil.
func commandOf(node *kong.Node) command {
	if node == nil {
		return nil
	}
	return node.Target.Addr().Interface().(command)
}

// withoutPassword removes the credentials of URLs from an error of the parser.
func withoutPassword(text string) string {
	return sentinelSecret.ReplaceAllString(credentials.ReplaceAllString(text, "://(hidden)@"),
		"${1}(hidden)")
}

var (
	credentials    = regexp.MustCompile(`(?s)://.*@`)
	sentinelSecret = regexp.MustCompile(`(?i)(sentinel[_-]password=)[^&\s]*`)
)
