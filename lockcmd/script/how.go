package script

import (
	"strconv"
	"strings"
	"time"
)

// How is how a proxy waits for a lock, as the lock record has it: letters, and a number behind
// them. read.lua says what they mean; the scripts add what the first waiter wants.
type How string

// NewHow is how a proxy waits: whether foreign clients compete there, whether it gets no release
// notifications, whether it tracks the lock and polls seldom, and how many steps far away the
// upstream is.
func NewHow(foreign, polls, tracks bool, steps int64) How {
	letter := ""
	switch {
	case foreign:
		letter = "f"
	case polls:
		letter = "p"
	case tracks:
		letter = "t"
	}
	return How(letter + strconv.FormatInt(steps, 10))
}

// Way is how long a round trip to the upstream takes from there; 0 for a near one.
func (h How) Way() time.Duration {
	steps, _ := strconv.Atoi(strings.TrimLeft(string(h), "fpslat"))
	return time.Duration(steps) * 100 * time.Millisecond
}

// Lasts is how long a proxy is listed after it has been seen, as waiting.lua has it.
func (h How) Lasts() time.Duration {
	if strings.Contains(string(h), "t") {
		return 7*time.Second + h.Way()
	}
	return time.Second + h.Way()
}

// Exclusive reports whether the first waiter does not share the lock.
func (h How) Exclusive() bool { return !strings.ContainsAny(string(h), "sl") }

// Unlimited reports whether it shares the lock with any number of others.
func (h How) Unlimited() bool { return strings.Contains(string(h), "s") }

// All reports whether it is a LOCKALL.
func (h How) All() bool { return strings.Contains(string(h), "a") }
