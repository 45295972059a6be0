package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/loglimit"
)

// newLogger returns the logger of the process: clients cannot fill it, nor write lines of their own.
func newLogger(opts *options, out io.Writer) hclog.Logger {
	json := opts.LogFormat == "json"
	logger := hclog.New(&hclog.LoggerOptions{
		Name:       "lockproxy",
		Level:      hclog.LevelFromString(opts.LogLevel),
		Output:     out,
		JSONFormat: json,
	})
	if json {
		return loglimit.Lines(logger) // its encoder escapes what needs it
	}
	return loglimit.Lines(lineLogger{logger})
}

// lineLogger writes each record as one line of text. hclog alone would write each line of a value
// on a separate line, so that a client could write lines into the log by a lock's key or owner.
type lineLogger struct{ hclog.Logger }

func (l lineLogger) Log(level hclog.Level, msg string, args ...any) {
	if level < l.GetLevel() {
		return
	}
	if strings.ContainsFunc(msg, unprintable) {
		msg = strconv.Quote(msg)
	}
	l.Logger.Log(level, msg, onOneLine(args)...)
}

func (l lineLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l lineLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l lineLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l lineLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l lineLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l lineLogger) With(args ...any) hclog.Logger {
	return lineLogger{l.Logger.With(onOneLine(args)...)}
}

func (l lineLogger) Named(name string) hclog.Logger { return lineLogger{l.Logger.Named(name)} }

func (l lineLogger) ResetNamed(name string) hclog.Logger {
	return lineLogger{l.Logger.ResetNamed(name)}
}

// StandardLogger logs what it is given at the forced level; it infers none.
func (l lineLogger) StandardLogger(opts *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(opts), "", 0)
}

func (l lineLogger) StandardWriter(opts *hclog.StandardLoggerOptions) io.Writer {
	return lineWriter{l, opts.ForceLevel}
}

type lineWriter struct {
	log   lineLogger
	level hclog.Level
}

func (w lineWriter) Write(p []byte) (int, error) {
	w.log.Log(w.level, strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// onOneLine quotes values that hclog would write as several lines. It leaves args as they are.
func onOneLine(args []any) []any {
	var quoted []any
	for i, arg := range args {
		if text := fmt.Sprint(arg); strings.Contains(text, "\n") {
			if quoted == nil {
				quoted = append(quoted, args...)
			}
			quoted[i] = hclog.Quote(text)
		}
	}
	if quoted == nil {
		return args
	}
	return quoted
}

func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// redisLog takes what go-redis would print otherwise. Its errors are reported elsewhere too.
type redisLog struct{ hclog.Logger }

// Printf implements go-redis's logger.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.Debug(fmt.Sprintf(format, args...))
}
