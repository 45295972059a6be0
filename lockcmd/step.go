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
// event loop leaves the session until the answer has come, a goroutine waits for it.
type Step struct {
	Asks Asks // nil for nothing: the Step is finished at once
	// Until is how long a Script or Commands are waited for: then they fail with failure.LateError.
	// It is when a Turn is finished at the latest, and can change. Zero is for as long as it takes.
	Until time.Time
	// Finish takes the answer, or the failure to get one. It returns the reply, or the step that
	// follows. Finish must not block. To wait for another answer, return another step, or start a
	// job of the timers.
	Finish func(script.Answer, error) (Reply, *Step)
}

// Asks is what a Step asks for: a Script, Commands, a Pause or a Turn.
type Asks interface{ asks() }

// Script asks for the answer to a script.
type Script struct{ *script.Call }

// Commands are commands of the proxy's own, which go together by the client's own connection. None
// is sent on another connection than those before, until the command has its reply.
type Commands struct {
	List  [][][]byte
	Reads bool // they depend on nothing, and go by any connection
	// Further says that they are some of many that do no harm if they are left out. Where the
	// client has closed its side, and they take long, the driver answers ErrOverdue.
	Further bool
}

// Pause asks for nothing, and lets so much time pass.
type Pause time.Duration

// Turn asks for nothing, and waits for other clients. It is data: nobody waits for it. Its Step is
// finished at once, whenever the Client is woken, at Until, and when the client is disconnected;
// also for nothing. As long as the Step waits, it is followed by itself. Its failure is why the
// command is useless by now: failure.ErrGone, failure.ErrLost, or nil.
type Turn struct{}

func (Script) asks()   {}
func (Commands) asks() {}
func (Pause) asks()    {}
func (Turn) asks()     {}

// Call is the script that the Step asks for, nil if it asks for none.
func (s *Step) Call() *script.Call {
	asked, _ := s.Asks.(Script)
	return asked.Call
}

// Commands are what the Step asks for; none if it asks for something else.
func (s *Step) Commands() (c Commands) {
	c, _ = s.Asks.(Commands)
	return c
}

// refusedStep is the Step of a command that asks for nothing, and fails.
func refusedStep(err error) *Step {
	return &Step{Finish: func(script.Answer, error) (Reply, *Step) { return errorReply(err), nil }}
}

// GoneFor is how long a command of several steps goes on although its client has closed its side:
// it may still read. A session lock of the client lasts as long.
const GoneFor = 500 * time.Millisecond

// ErrOverdue is the answer after that: see Commands.
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
