package loglimit

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// maxKinds bounds the messages that are told apart: all others are one kind.
const maxKinds = 1000

// Lines returns a logger that writes to log at most maxLines lines of one kind within a second. The
// next line of that kind says in others_not_logged how many were left out. Lines below the level
// info are all written.
func Lines(log hclog.Logger) hclog.Logger { return lines(log, time.Now) }

func lines(log hclog.Logger, now func() time.Time) hclog.Logger {
	return logger{log, &kinds{now: now, limits: map[string]*Limit{}, others: &Limit{}}}
}

type logger struct {
	hclog.Logger
	kinds *kinds
}

// kinds are the limits of the messages.
type kinds struct {
	now func() time.Time

	mu     sync.Mutex
	limits map[string]*Limit // guarded by mu
	others *Limit            // of messages for which there was no room
}

func (k *kinds) of(msg string) *Limit {
	k.mu.Lock()
	defer k.mu.Unlock()
	limit := k.limits[msg]
	switch {
	case limit != nil:
	case len(k.limits) == maxKinds:
		limit = k.others
	default:
		limit = &Limit{}
		k.limits[msg] = limit
	}
	return limit
}

func (l logger) Log(level hclog.Level, msg string, args ...any) {
	switch {
	case level < l.GetLevel():
		return
	case level >= hclog.Info:
		omitted, ok := l.kinds.of(msg).Allow(l.kinds.now())
		if !ok {
			return
		}
		if omitted > 0 {
			args = append(args[:len(args):len(args)], "others_not_logged", omitted)
		}
	}
	l.Logger.Log(level, msg, args...)
}

func (l logger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l logger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l logger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l logger) With(args ...any) hclog.Logger { return logger{l.Logger.With(args...), l.kinds} }

func (l logger) Named(name string) hclog.Logger { return logger{l.Logger.Named(name), l.kinds} }

func (l logger) ResetNamed(name string) hclog.Logger {
	return logger{l.Logger.ResetNamed(name), l.kinds}
}
