package testwait

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen. It is long, because the machine stops
// now and then, and a test that passes never waits for it.
const Patience = 2 * time.Minute

// Until sleeps for firstPause between two looks, and when it has waited for long, for up to
// lastPause: looking takes time of the processor, which what is waited for needs too.
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 25 * time.Millisecond
)

// Until returns once ok holds. It ends the test if that takes longer than Patience. It must be
// called by the test's own goroutine.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !Holds(ok) {
		t.Fatalf("not within %v: %s", Patience, what)
	}
}

// Holds is Until for any goroutine: it returns false if ok does not hold within Patience.
func Holds(ok func() bool) bool {
	for began := time.Now(); !ok(); {
		waited := time.Since(began)
		if waited > Patience {
			return false
		}
		time.Sleep(min(max(waited/50, firstPause), lastPause))
	}
	return true
}

// For returns what comes from a channel next; the zero value if it is closed. It ends the test if
// nothing comes within Patience.
func For[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(Patience):
		t.Fatalf("not within %v: %s", Patience, what)
		panic("not reached")
	}
}

// Blocked returns when a goroutine waits within a function, which is named as in a stack trace:
// "passthrough.(*home).wait".
func Blocked(t testing.TB, function string) {
	t.Helper()
	Until(t, "a goroutine waits in "+function, func() bool {
		stacks := make([]byte, 8<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			state, calls, _ := strings.Cut(stack, "\n")
			if strings.Contains(calls, function+"(") && !strings.Contains(state, "[run") {
				return true
			}
		}
		return false
	})
}

// Deadline is when the patience of a wait that begins now ends. It is for connections.
func Deadline() time.Time { return time.Now().Add(Patience) }
