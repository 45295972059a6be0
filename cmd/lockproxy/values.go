package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// size is a number of bytes, written as in redis.conf: 1k is 1000, 1kb is 1024, and so on with m
// and g; case doesn't matter.
type size int64

var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"k": 1000, "kb": 1 << 10,
	"m": 1000 * 1000, "mb": 1 << 20,
	"g": 1000 * 1000 * 1000, "gb": 1 << 30,
}

func parseSize(text string) (size, error) {
	word := strings.ToLower(text)
	digits := strings.TrimRight(word, "bkmg")
	n, err := strconv.ParseUint(digits, 10, 63)
	unit, known := sizeUnits[word[len(digits):]]
	if err != nil || !known || int64(n) > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	return size(int64(n) * unit), nil
}

// mappers read the values of flags, from wherever they come. Their errors name what is allowed.
func mappers() []kong.Option {
	return []kong.Option{
		kong.KindMapper(reflect.String, kong.MapperFunc(readText)),
		kong.KindMapper(reflect.Int, bounded("a number", "", strconv.Atoi)),
		kong.TypeMapper(reflect.TypeFor[size](),
			bounded("a size", ", as in 64kb, 1mb or 2gb", parseSize)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](),
			bounded("a time", ", as in 90s or 1h30m", time.ParseDuration)),
		kong.TypeMapper(reflect.TypeFor[seconds](),
			bounded("seconds", ", as in 30, 0.5 or 5m", parseSeconds)),
		kong.TypeMapper(reflect.TypeFor[fileMode](),
			bounded("octal permissions", ", as in 0770", parseMode)),
	}
}

// bounded returns a mapper of values within the flag's tag range, such as "1 to 1024".
func bounded[T int | size | time.Duration | seconds | fileMode](
	what, example string, parse func(string) (T, error),
) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		text, err := popNumber(ctx)
		if err != nil {
			return err
		}
		bounds := ctx.Value.Tag.Get("range")
		from, to, _ := strings.Cut(bounds, " to ")
		least, errLeast := parse(from)
		most, errMost := parse(to)
		if errLeast != nil || errMost != nil {
			panic("--" + ctx.Value.Name + " has no range")
		}
		value, err := parse(text)
		if err != nil || value < least || value > most {
			return fmt.Errorf("want %s from %s to %s%s, not %q", what, from, to, example, text)
		}
		target.SetInt(int64(value))
		return nil
	})
}

// popText returns what follows a flag, or an argument.
func popText(ctx *kong.DecodeContext) (text string, err error) {
	if err := ctx.Scan.PopValueInto("value", &text); err != nil && ctx.Value.Flag != nil {
		return "", fmt.Errorf("the value is missing: write --%s=%s", ctx.Value.Name,
			ctx.Value.Flag.FormatPlaceHolder())
	} else if err != nil {
		return "", err
	}
	return text, nil
}

// popNumber is popText for a number, which can be negative: kong takes -1 for a flag.
func popNumber(ctx *kong.DecodeContext) (text string, err error) {
	next, _ := ctx.Scan.Peek().Value.(string)
	if isNegative.MatchString(next) {
		ctx.Scan.Pop()
		return next, nil
	}
	return popText(ctx)
}

var isNegative = regexp.MustCompile(`^-[0-9.]`)

// readText reads the text of a flag, which must not be empty: an empty one is more likely a missing
// secret or variable than a wish for the default. Arguments that are no flag can be empty.
func readText(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	if ctx.Value.Flag != nil && strings.TrimSpace(text) == "" {
		return errors.New("the value is empty: give one, or leave the setting out")
	}
	target.SetString(text)
	return nil
}

// readSecret sets the value of a flag from the file that its -file flag names, without the line's
// end. "" is no file.
func readSecret(flag string, value *string, file string) error {
	*value = strings.TrimSpace(*value)
	if file == "" {
		return nil
	}
	if *value != "" {
		return fmt.Errorf("--%s and --%s-file: leave one of the two out", flag, flag)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--%s-file: %w", flag, err)
	}
	if *value = strings.TrimSpace(string(text)); *value == "" {
		return fmt.Errorf("--%s-file: the file %s is empty", flag, file)
	}
	return nil
}

// readSecrets reads the files of secrets.
func (o *options) readSecrets() error {
	return errors.Join(
		readSecret("upstream", &o.Upstream, o.UpstreamFile),
		readSecret("admin-token", &o.AdminToken, o.AdminTokenFile),
		readSecret("sentinel-password", &o.SentinelPassword, o.SentinelPasswordFile))
}

// fileMode is the permissions of a file, written in octal.
type fileMode int64

func parseMode(text string) (fileMode, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	return fileMode(n), err
}

// seconds is a time in seconds, decimals allowed, as LOCK takes it, or with a unit: 30, 0.5, 90s,
// 5m.
type seconds time.Duration

func parseSeconds(text string) (seconds, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	return seconds(d), err
}

// decimal writes seconds as LOCK takes them, to the millisecond, never rounded down to none.
func (s seconds) decimal() string {
	ms := (time.Duration(s) + time.Millisecond - 1).Milliseconds()
	return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64)
}
