package passthrough

import (
	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// logsIn is the login after RESET, an Effect that only this package knows. If it fails, Identity is
// wrong.
const logsIn = commands.Effects

// Expect describes the reply to a relayed request.
type Expect struct {
	Effect commands.Effect
	// channels of a (un)subscribe, 0 for all of them; milliseconds of Pauses
	Count int
	// for Select, Auth and Hello: the identity after success: see after
	Change *upstream.Identity
	Proto  int     // for a Hello without Change
	Text   *string // for SetName, SetLibName, SetLibVer, and for Hello if it sets a name
	Blocks bool    // it can wait for what another client does
	// Numbers says that it shows the numbers of other connections, or has Redis remember one.
	Numbers bool
	// Replied, unless nil, is called with the reply's head, which is valid until it returns. It
	// must not wait, nor call a Pipe.
	Replied func(resp.Head)

	judged bool     // by a judge: after an error nothing has changed
	held   int      // bytes of the request that it keeps in memory
	shows  *numbers // told when the request is sent and answered; nil if it does not show any
}
