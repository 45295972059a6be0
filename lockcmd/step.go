package lockcmd

import (
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// Client is a connection whose lock command runs, and what it runs as. Nothing in it waits.
type Client struct {
	*held.Holder
	As names.Identity
	// Waker has the Step go on that waits for others. It can be called from anywhere, and with
	// mutexes held.
	Waker interface{ Wake() }
}

// Step is a part of a lock command: it asks for one thing, and says what follows. A command is a
// chain of them. The one who drives it gets the answer, in the order of the session's requests: an
// event loop leaves the session until the answer has come, a goroutine waits for it. A Step that
// asks for nothing is finished at once.
type Step struct {
	*script.Call // a script's answer; nil for none
	// Do is commands of the proxy's own, which go together by the client's own connection. None is
	// sent on another connection than those before, until the command has its reply.
	Do [][][]byte
	// Reads says that Do depends on nothing, and goes by any connection.
	Reads bool
	Pause time.Duration // asks for nothing, and goes on after this time
	// Further says that it is one of many that do no harm if they are left out. Where the client
	// has closed its side, and they take long, the driver answers ErrOverdue.
	Further bool
	// Wait says that it asks for nothing, and waits for other clients. It is data: nobody waits for
	// it. It is finished at once, whenever the Client is woken, at Until, and when the client is
	// disconnected; also for nothing. As long as it waits, it is followed by itself. Its failure is
	// why the command is useless by now: failure.ErrGone, failure.ErrLost, or nil.
	Wait bool
	// Until is how long an answer is waited for: then a script fails with failure.LateError. A Step
	// that waits can change it. Zero is for as long as it takes.
	Until time.Time
	// Finish takes the answer, or the failure to get one. It returns the reply, or the step that
	// follows. Finish must not block. To wait for another answer, return another step, or start a
	// job of the timers.
	Finish func(script.Answer, error) (Reply, *Step)
}

// refusedStep is the Step of a command that asks for nothing, and fails.
func refusedStep(err error) *Step {
	return &Step{Finish: func(script.Answer, error) (Reply, *Step) { return errorReply(err), nil }}
}

// GoneFor is how long a command of several steps goes on although its client has closed its side:
// it may still read. A session lock of the client lasts as long.
const GoneFor = 500 * time.Millisecond

// ErrOverdue is the answer after that: see Step.Further.
const ErrOverdue = syntax.UsageError("TRYAGAIN the client has closed its side of the connection, " +
	"and the answer takes too long: connect again and ask again")

// wordsOf makes a command of its words.
func wordsOf(list ...string) [][]byte {
	command := make([][]byte, len(list))
	for i, word := range list {
		command[i] = []byte(word)
	}
	return command
}
