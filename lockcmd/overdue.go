package lockcmd

import (
	"context"
	"time"
)

// goneFor is how long a command of several steps goes on although its client has closed its side:
// it may still read. A session lock of the client lasts as long.
const goneFor = 500 * time.Millisecond

// errOverdue is the answer after that.
const errOverdue = UsageError("TRYAGAIN this side of the connection was closed, and the answer " +
	"takes too long: connect again and ask again")

// overdue reports whether a command of several steps must end before the next of them.
func overdue(ctx context.Context, began time.Time) bool {
	return time.Since(began) > goneFor && ctx.Err() != nil
}
