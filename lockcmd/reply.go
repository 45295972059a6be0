package lockcmd

import "lockproxy/lockcmd/held"

// ReplyKind says which of a Reply's fields count.
type ReplyKind uint8

const (
	ErrorReply ReplyKind = iota
	NullReply
	IntReply
	BulkReply
	StatusReply
	ArrayReply
	MapReply // Elems are keys and values in turn
	RawReply // Raw is the reply as the upstream sent it
)

// Reply is a lock command's reply, in no protocol version yet.
type Reply struct {
	Kind  ReplyKind
	Err   error
	Int   int64
	Text  string
	Elems []Reply
	Raw   []byte
	// Given is the lock with this token, if that is new to the client: Holder.MarkSent must be
	// called when the reply is sent.
	Given *held.Lock
}

var nullReply = Reply{Kind: NullReply}

func errorReply(err error) Reply  { return Reply{Kind: ErrorReply, Err: err} }
func intReply(n int64) Reply      { return Reply{Kind: IntReply, Int: n} }
func bulkReply(text string) Reply { return Reply{Kind: BulkReply, Text: text} }
func statusReply(t string) Reply  { return Reply{Kind: StatusReply, Text: t} }
