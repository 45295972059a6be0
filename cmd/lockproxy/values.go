package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
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

// UnmarshalText reads a size from the command line or the environment.
func (s *size) UnmarshalText(text []byte) error {
	word := strings.ToLower(string(text))
	digits := strings.TrimRight(word, "bkmg")
	n, err := strconv.ParseUint(digits, 10, 63)
	unit, known := sizeUnits[word[len(digits):]]
	if err != nil || !known || int64(n) > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a size: want for example 65536, 64kb, 1mb or 2gb", text)
	}
	*s = size(int64(n) * unit)
	return nil
}

// filled is a text that is not empty. An empty one is more likely a secret that is missing than the
// wish for the default.
type filled string

// UnmarshalText reads it from the command line, the environment or a file.
func (f *filled) UnmarshalText(text []byte) error {
	if *f = filled(strings.TrimSpace(string(text))); *f == "" {
		return errors.New("it is empty: give a value, or leave it out")
	}
	return nil
}

// readSecret sets the value of a flag from the file that its -file flag names, without the line's
// end. "" is no file.
func readSecret(flag string, value *string, file filled) error {
	if file == "" {
		return nil
	}
	if *value != "" {
		return fmt.Errorf("--%s and --%s-file: leave one of the two out", flag, flag)
	}
	text, err := os.ReadFile(string(file))
	if err != nil {
		return fmt.Errorf("--%s-file: %w", flag, err)
	}
	if *value = strings.TrimSpace(string(text)); *value == "" {
		return fmt.Errorf("--%s-file: %s is empty", flag, file)
	}
	return nil
}

// readSecrets reads the files of secrets.
func (o *options) readSecrets() error {
	return errors.Join(
		readSecret("upstream", (*string)(&o.Upstream), o.UpstreamFile),
		readSecret("admin-token", &o.AdminToken, o.AdminTokenFile),
		readSecret("sentinel-password", &o.SentinelPassword, o.SentinelPasswordFile))
}

// fileMode is the permissions of a file, written in octal.
type fileMode os.FileMode

// UnmarshalText reads permissions from the command line or the environment.
func (m *fileMode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf("%q are no permissions: want octal digits, for example 0700 or 0770",
			text)
	}
	*m = fileMode(n)
	return nil
}

// seconds is a time in seconds, decimals allowed, as LOCK takes it, or with a unit: 30, 0.5, 90s,
// 5m.
type seconds time.Duration

// UnmarshalText reads seconds from the command line.
func (s *seconds) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		d, err = time.ParseDuration(string(text) + "s")
	}
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no time: want seconds, for example 30 or 0.5, or 5m", text)
	}
	*s = seconds(d)
	return nil
}

// decimal writes seconds as LOCK takes them, to the millisecond, never rounded down to none.
func (s seconds) decimal() string {
	ms := (time.Duration(s) + time.Millisecond - 1).Milliseconds()
	return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64)
}
