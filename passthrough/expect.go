package passthrough

import (
	"lockproxy/internal/commands"
	"lockproxy/internal/upstream"
)

// Effects that requests of the proxy's own have.
const (
	MaybeUnanswered = commands.Effects + iota // Unanswered, but a probe behind it tells whether it got a reply
	// logsIn is of the login behind RESET: if it fails, the connection isn't what Identity says.
	logsIn
)

// Expect describes the reply that one relayed request will get.
type Expect struct {
	Effect commands.Effect
	Count  int                // channels named by a (un)subscribe, 0 is all of them; for Pauses, ms
	Change *upstream.Identity // for Select, Auth and Hello: the identity once it has succeeded, see State.merge
	Proto  int                // for a Hello without Change
	Text   *string            // for SetName, SetLibName, SetLibVer, and for Hello if it sets a name
	// Accepted is called when the upstream has answered otherwise than with an error; nil is nothing.
	// QUEUED counts: who may queue a command may run it. It must return at once and call no Pipe.
	Accepted func()
}
