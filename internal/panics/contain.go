package panics

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
)

// Panic is a panic that was contained. Neither field has a byte of what a client has sent.
type Panic struct {
	What  string // the text of an error of the runtime; otherwise the type of the value
	Stack string // functions and lines, the innermost first
}

// Error is what other clients are told whose requests were lost together with this one's.
func (p *Panic) Error() string { return "lockproxy has a fault: its log has the details" }

// Contain is deferred. If the function panics, and has changed only state of one client, it makes
// err a *Panic, and the function returns. Otherwise the panic goes on.
func Contain(err *error) {
	value := recover()
	if value == nil {
		return
	}
	functions, stack := interrupted()
	if !areOwn(functions) {
		panic(value)
	}
	what := fmt.Sprintf("%T", value) // the value itself can hold what a client has sent
	if failure, ok := value.(runtime.Error); ok {
		what = failure.Error()
	}
	*err = &Panic{What: what, Stack: strings.Join(stack, " < ")}
}

// In returns the Panic that an error is about; nil if it is about none.
func In(err error) (p *Panic) {
	errors.As(err, &p)
	return p
}

const (
	// tries is how often, and tryAfter after which pause, Free looks at a mutex.
	tries    = 1000
	tryAfter = time.Millisecond
)

// Free ends the process if the code that panicked has left a mutex of its client locked. Then the
// client cannot be ended, and others that need the mutex would wait for ever. Others lock it for
// moments only. Free can wait.
func Free(mu *sync.Mutex, p *Panic) {
	loopguard.MayWait()
	for range tries {
		if mu.TryLock() {
			mu.Unlock()
			return
		}
		time.Sleep(tryAfter)
	}
	panic("a client's state has stayed locked after a panic: " + p.What + " in " + p.Stack)
}

// maxDepth bounds the functions that are looked at. A panic further down is not contained.
const maxDepth = 256

// interrupted is the functions that a panic has interrupted, the innermost first, up to the one
// that has deferred Contain; and the same with files and lines.
func interrupted() (functions, stack []string) {
	var callers [maxDepth]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		functions = append(functions, frame.Function)
		if !strings.HasPrefix(frame.Function, "runtime.") {
			stack = append(stack, fmt.Sprintf("%s %s:%d", strings.TrimPrefix(frame.Function, module),
				path.Base(frame.File), frame.Line))
		}
		if !more || entries[frame.Function] {
			return functions, stack
		}
	}
}
