package chain

import (
	"time"

	"lockproxy/lockcmd/held"
)

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

var Null = Reply{Kind: NullReply}

func Failed(err error) Reply { return Reply{Kind: ErrorReply, Err: err} }
func Int(n int64) Reply      { return Reply{Kind: IntReply, Int: n} }
func Bulk(text string) Reply { return Reply{Kind: BulkReply, Text: text} }
func Status(t string) Reply  { return Reply{Kind: StatusReply, Text: t} }

// MS is a time in ms.
func MS(d time.Duration) Reply { return Int(d.Milliseconds()) }

// Map is a map of names and Replies in turn.
func Map(fields ...any) Reply {
	m := Reply{Kind: MapReply}
	for i := 0; i < len(fields); i += 2 {
		m.Elems = append(m.Elems, Bulk(fields[i].(string)), fields[i+1].(Reply))
	}
	return m
}

// Text is null for an empty text.
func Text(text string) Reply {
	if text == "" {
		return Null
	}
	return Bulk(text)
}
