package lockcmd

import (
	"time"

	"lockproxy/lockcmd/syntax"
)

// GoneFor is how long a command of several steps goes on although its client has closed its side:
// it may still read. A session lock of the client lasts as long.
const GoneFor = 500 * time.Millisecond

// ErrOverdue is the answer after that: see Step.Further.
const ErrOverdue = syntax.UsageError("TRYAGAIN this side of the connection was closed, and the answer " +
	"takes too long: connect again and ask again")
