package chain

import (
	"context"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// Client is a connection whose lock command runs, and what it runs as. Nothing in it waits.
type Client struct {
	*held.Holder
	As names.Identity
}

// Upstream answers the questions of a session that waits. Get waits for the value of a key, until a
// time.
type Upstream interface {
	background.Evaluator
	Get(key string, until time.Time) (resp.Value, error)
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
	// Wait begins to wait for other clients, which takes a goroutine: it asks. No step follows, and
	// only with ONCE does one come before. wake is called when the Turn can go on.
	Wait func(ctx context.Context, on Upstream, wake func()) Turn
	// Finish takes the answer, or the failure to get one. It returns the reply, or the step that
	// follows. Finish must not block. To wait for another answer, return another step, or start a
	// job of the timers.
	Finish func(script.Answer, error) (Reply, *Step)
}

// Turn is a command that waits for other clients. It is data: nobody waits for it.
type Turn interface {
	// Go takes the Turn on. In a loop it does only the part that needs no answer. It is called when
	// the Turn has begun, when the Turn calls wake, at Due, and when ctx ends; also for no reason.
	Go(ctx context.Context, inLoop bool) (Reply, Progress)
	Due() time.Time // zero is never
}

// Progress is how far a Turn has come.
type Progress uint8

const (
	Sleeps Progress = iota
	Asks            // only a goroutine can take it on
	Ended           // it has its reply
)

// Answered is the Step of a command that needs no answer.
func Answered(r Reply) *Step {
	return &Step{Finish: func(script.Answer, error) (Reply, *Step) { return r, nil }}
}

// Drive runs a step and those that follow, which ask for scripts alone. It waits for the answers.
func Drive(on background.Evaluator, reply Reply, next *Step) Reply {
	for next != nil {
		var a script.Answer
		var err error
		if next.Call != nil {
			a, err = on.Eval(next.Call)
		}
		reply, next = next.Finish(a, err)
	}
	return reply
}

// GoneFor is how long a command of several steps goes on although its client has closed its side:
// it may still read. A session lock of the client lasts as long.
const GoneFor = 500 * time.Millisecond

// ErrOverdue is the answer after that: see Step.Further.
const ErrOverdue = syntax.UsageError("TRYAGAIN the client has closed its side of the connection, " +
	"and the answer takes too long: connect again and ask again")

// Words makes a command of its words.
func Words(list ...string) [][]byte {
	command := make([][]byte, len(list))
	for i, word := range list {
		command[i] = []byte(word)
	}
	return command
}
