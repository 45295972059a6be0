package passthrough

import (
	"errors"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// Request is sent by Relay: one request, a piece of one, or several that have no Effect.
type Request struct {
	Raw []byte
	N   int // how many requests Raw holds; 0 is one
	Way Way // for Route: Relay goes where that has decided
	Expect
	Piece       Piece
	Instead     []byte // the client gets this in place of the reply, unless it is nil
	Discarded   bool   // the client gets no reply
	SyncsWrites bool   // it makes Redis count the writes sent Elsewhere for the home: see Writes
}

// Piece says which part of a request Raw is. Pieces go only by the home.
type Piece uint8

const (
	Whole Piece = iota
	First
	Further
	Last
	Broken // none: the rest is invalid. Nothing may be sent after it
)

// Way says how a request can go.
type Way uint8

const (
	Home    Way = iota // by the home
	Shared             // by a lane
	Scripts            // by a lane for clients that run scripts, which can take long
	NewHome            // by the home; if none is open, by one on which nothing was sent before
	// by a connection that only takes what clients say when they connect, if this one has no home,
	// there are many, and it is one Redis; otherwise by the home
	Greets
	// Apart is Shared also for a client with CLIENT TRACKING, if a lane can be had and the home
	// owes nothing: what the proxy itself reads for the client is not tracked.
	Apart
	// for Send: a login, by a judge if that is possible, otherwise by the home
	Login
)

// ErrWaits is the outcome of what would have to wait in an event loop. Nothing was done: the
// session's goroutine must do it.
var ErrWaits = errors.New("this has to wait")

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
