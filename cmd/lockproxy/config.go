package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/alecthomas/kong"
)

// BeforeResolve reads the configuration file, if one is named: TOML, with the names of flags. Flags
// and environment override it.
func (o *options) BeforeResolve(ctx *kong.Context) error {
	flags := ctx.Selected().Flags
	at := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == "config" })
	name := ctx.FlagValue(flags[at]).(string)
	if name == "" {
		return nil
	}
	settings, err := readConfig(name, flags)
	if err != nil {
		return err
	}
	ctx.AddResolver(settings)
	o.file, o.fromFile = name, settings
	return nil
}

// settings are what a configuration file says, by the names of flags.
type settings map[string]string

// nameFile is an error's text with the file's name in front, if it is about a flag whose value is
// the file's: the command line does not have it. The environment is named already.
func (o *options) nameFile(text string, args []string) string {
	flag := text[:max(strings.IndexAny(text, ": "), 0)]
	_, found := o.fromFile[strings.TrimPrefix(flag, "--")]
	given := slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == flag
	})
	if !found || given || strings.Contains(text, " (from ") {
		return text
	}
	return "--config " + o.file + ": " + text
}

// readConfig reads a file that may set these flags. Its errors name the file.
func readConfig(name string, flags []*kong.Flag) (settings, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	raw := map[string]any{}
	if err := toml.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("--config %s: %w", name, tomlError(err))
	}
	list := settings{}
	for key, value := range raw {
		if !settable(key, flags) {
			return nil, fmt.Errorf("--config %s: unknown setting %q%s", name, key,
				unknownSetting(key, value, flags))
		}
		// TOML's number for permissions is 0o770, and what is left of it is 504.
		if _, isNumber := value.(int64); isNumber && key == "listen-mode" {
			return nil, fmt.Errorf(`--config %s: %s: want a string, as in "0770"`, name, key)
		}
		if list[key], err = asFlag(value); err != nil {
			return nil, fmt.Errorf("--config %s: %s: %w", name, key, err)
		}
	}
	return list, nil
}

// tomlError says where the file is not TOML, without quoting the line, which can hold a password.
func tomlError(err error) error {
	var at toml.ParseError
	if errors.As(err, &at) && strings.HasSuffix(at.Message, "already been defined.") {
		return fmt.Errorf("line %d sets what an earlier line has set: leave one of the two out",
			at.Position.Line)
	}
	if errors.As(err, &at) {
		return fmt.Errorf(`line %d is not TOML: want name = 5, name = "text" or name = true`,
			at.Position.Line)
	}
	return err
}

func settable(key string, flags []*kong.Flag) bool {
	return key != "config" && key != "help" &&
		slices.ContainsFunc(flags, func(f *kong.Flag) bool { return f.Name == key })
}

// unknownSetting says what is wrong with a name in the file that no flag has.
func unknownSetting(key string, value any, flags []*kong.Flag) string {
	if _, isTable := value.(map[string]any); isTable {
		return ": the file can have no tables: want lines such as max-clients = 100"
	}
	var names []string
	for _, flag := range flags {
		if settable(flag.Name, flags) {
			names = append(names, flag.Name)
		}
	}
	if meant := guess(strings.ReplaceAll(key, "_", "-"), names); meant != "" {
		return meant
	}
	return ": want the name of a flag, without dashes before it, as in max-clients"
}

// asFlag writes a value as on the command line.
func asFlag(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool, int64, float64:
		return fmt.Sprint(v), nil
	case []any:
		words := make([]string, len(v))
		for i, elem := range v {
			var err error
			if words[i], err = asFlag(elem); err != nil {
				return "", err
			}
		}
		return strings.Join(words, ","), nil
	}
	return "", errors.New("want a string, a number, true or false, or a list of them")
}

// Validate implements kong.Resolver; readConfig has done it.
func (s settings) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver: the file's value of a flag that is neither given nor in the
// environment.
func (s settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, found := s[flag.Name]
	if !found ||
		slices.ContainsFunc(flag.Envs,
			func(name string) bool { _, set := os.LookupEnv(name); return set }) {
		return nil, nil
	}
	return value, nil
}
