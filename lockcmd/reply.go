package lockcmd

import (
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/held"
)

// Reply is a lock command's reply, in no protocol version yet: an error, the upstream's own reply,
// or a Value.
type Reply struct {
	Err error
	Raw []byte // as the upstream sent it
	resp.Value
	// Given is the lock with this token, if that is new to the client: Holder.MarkSent must be
	// called when the reply is sent.
	Given *held.Lock
}

func valueReply(v resp.Value) Reply { return Reply{Value: v} }

func errorReply(err error) Reply { return Reply{Err: err} }
