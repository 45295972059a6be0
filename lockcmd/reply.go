package lockcmd

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
	given *heldLock // the lock with this token, for GivesLock
}

// GivesLock reports whether the reply is a token that is new to the client. Holder.MarkSent must be
// called when it is sent.
func (r *Reply) GivesLock() bool { return r.given != nil }

var nullReply = Reply{Kind: NullReply}

func errorReply(err error) Reply  { return Reply{Kind: ErrorReply, Err: err} }
func intReply(n int64) Reply      { return Reply{Kind: IntReply, Int: n} }
func bulkReply(text string) Reply { return Reply{Kind: BulkReply, Text: text} }
func statusReply(t string) Reply  { return Reply{Kind: StatusReply, Text: t} }
