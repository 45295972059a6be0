package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

var helpOptions = kong.HelpOptions{WrapUpperBound: 110,
	ValueFormatter: kong.DefaultHelpValueFormatter}

// advancedTag marks flags that few need: --help-all shows them.
const advancedTag = "advanced"

// helpAll is --help-all.
type helpAll bool

// IgnoreDefault makes kong call BeforeReset only if the flag is given.
func (helpAll) IgnoreDefault() {}

// BeforeReset prints help before flags are checked, as kong does for --help.
func (helpAll) BeforeReset(ctx *kong.Context) error {
	if err := printAllHelp(helpOptions, ctx); err != nil {
		return err
	}
	ctx.Kong.Exit(0)
	return nil
}

// asFlags takes lockproxy help, help run and version for what people mean by them.
func asFlags(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(args[1:len(args):len(args)], "--help")
	case len(args) == 1 && args[0] == "version":
		return []string{"--version"}
	}
	return args
}

// printHelp prints the help of --help: without advanced flags.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	hidden := false
	kong.Visit(ctx.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && flag.Tag.Has(advancedTag) {
			flag.Hidden = true
		}
		return next(nil)
	})
	shown := ctx.Selected()
	if shown == nil {
		shown = ctx.Model.DefaultCmd
	}
	for _, flag := range shown.Flags {
		hidden = hidden || flag.Hidden
	}
	if err := printAllHelp(options, ctx); err != nil || !hidden {
		return err
	}
	_, err := fmt.Fprintln(ctx.Stdout, "\nFlags that are rarely needed are shown by --help-all.")
	return err
}

// printAllHelp prints kong's help, and without a command that of serving, with the other commands
// above it.
func printAllHelp(options kong.HelpOptions, ctx *kong.Context) error {
	options.NoAppSummary = true
	if cmd := ctx.Selected(); cmd != nil {
		fmt.Fprintln(ctx.Stdout, "Usage:", usage(cmd))
		return kong.DefaultHelpPrinter(options, ctx)
	}
	fmt.Fprintln(ctx.Stdout, "Usage: lockproxy [serve] [flags]")
	printCommands(ctx.Stdout, ctx.Model.Node)
	serve := ctx.Model.DefaultCmd
	shown := *serve
	shown.Help = ctx.Model.Help
	ctx.Path = append(ctx.Path, &kong.Path{Parent: serve, Command: &shown, Flags: serve.Flags})
	return kong.DefaultHelpPrinter(options, ctx)
}

// printCommands prints one line for each command but that of serving.
func printCommands(out io.Writer, program *kong.Node) {
	for _, cmd := range program.Children {
		if cmd != program.DefaultCmd && !cmd.Hidden {
			fmt.Fprintf(out, "       %-57s  %s\n", usage(cmd), cmd.Help)
		}
	}
}

// usage is a command's line, with its own command line at the end, if it has one.
func usage(cmd *kong.Node) string {
	words := []string{"lockproxy", cmd.Name}
	for _, flag := range cmd.Flags {
		if flag.Required {
			words = append(words, "--"+flag.Name+"="+flag.FormatPlaceHolder())
		}
	}
	words = append(words, "[flags]")
	for _, arg := range cmd.Positional {
		if arg.Enum != "" {
			words = append(words, strings.ReplaceAll(arg.Enum, ",", "|"))
		} else {
			words = append(words, "--", arg.Name, "[arguments]")
		}
	}
	return strings.Join(words, " ")
}
