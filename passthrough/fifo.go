package passthrough

import (
	"slices"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/fifo"
)

// pendingReply is one reply, or several alike, that the client is owed.
type pendingReply struct {
	Expect
	count  int       // missing replies, 0 is 1; consecutive plain requests share an entry
	local  []byte    // the proxy's reply, for kinds overridden and local
	kind   replyKind // what happens to Redis's reply
	answer *Answer   // for kinds internal and barrier
	setsUp bool      // for kind discarded: if the reply is neither OK nor an error, it is another's
	// for kind internal without an answer, which no session waits for: it is given Redis's reply,
	// and must neither wait nor keep it
	took func(raw []byte)
}

type replyKind uint8

const (
	relayed    replyKind = iota // to the client
	internal                    // to answer
	discarded                   // nowhere
	overridden                  // discarded; local goes to the client
	local                       // Redis sends none; local goes to the client
	// Redis sends none; answer is done once everything before it is answered
	barrier
)

// replies is how many replies are missing.
func (e *pendingReply) replies() int { return max(1, e.count) }

// awaitsReply reports whether Redis will reply.
func (e *pendingReply) awaitsReply() bool { return e.kind < local }

// call is the call that this is the reply to; nil for other requests.
func (e *pendingReply) call() *Call {
	if e.answer == nil {
		return nil
	}
	return e.answer.call
}

// isPlain reports whether e is as others are that share an entry.
func (e *pendingReply) isPlain() bool {
	return e.Effect == commands.NoEffect && e.kind == relayed && e.Replied == nil && !e.Blocks &&
		e.shows == nil
}

// unseen reports whether the client gets nothing for it.
func (e *pendingReply) unseen() bool { return e.kind == internal || e.kind == discarded }

// replyFIFO is the pending replies, and what they are together. Its zero value is empty.
type replyFIFO struct {
	entries fifo.Queue[pendingReply]
	unseen  int // entries of which the client gets nothing
	effects int // entries with an Effect
	held    int // bytes that the entries keep in memory

	blockedUntil time.Time // when the last entry that blocks was removed
}

func (q *replyFIFO) empty() bool { return q.entries.Len() == 0 }

// relaysOnly reports whether there are entries, and the session waits for none of them itself.
func (q *replyFIFO) relaysOnly() bool {
	return !q.empty() && !slices.ContainsFunc(q.entries.All(), func(e pendingReply) bool {
		return e.answer != nil
	})
}

// blocks reports whether an entry can wait for what another client does.
func (q *replyFIFO) blocks() bool {
	return slices.ContainsFunc(q.entries.All(), func(e pendingReply) bool { return e.Blocks })
}

// replies is how many replies are missing.
func (q *replyFIFO) replies() (n int) {
	for _, e := range q.entries.All() {
		n += e.replies()
	}
	return n
}

// len returns the number of entries, not of replies.
func (q *replyFIFO) len() int { return q.entries.Len() }

// head is the first entry; nil if there is none.
func (q *replyFIFO) head() *pendingReply { return q.entries.Head() }

// add adds an entry at the end.
func (q *replyFIFO) add(e pendingReply) {
	if e.shows != nil {
		e.shows.asks()
	}
	e.count = e.replies()
	q.count(&e, 1)
	q.entries.Push(e)
}

// removeLast removes the last request, if it has not been answered.
func (q *replyFIFO) removeLast() {
	last := q.entries.Last()
	if last == nil {
		return
	}
	if last.count--; last.count == 0 {
		q.removed(last)
		q.entries.DropLast()
	}
}

// pop removes the first entry.
func (q *replyFIFO) pop() {
	q.removed(q.head())
	q.entries.Pop()
}

// removed records that an entry is about to be removed.
func (q *replyFIFO) removed(e *pendingReply) {
	q.count(e, -1)
	if e.Blocks {
		q.blockedUntil = time.Now()
	}
	if e.shows != nil {
		e.shows.answered()
	}
}

// count adds an entry to what the queue counts, or takes it off: by is 1 or -1.
func (q *replyFIFO) count(e *pendingReply, by int) {
	if e.Effect != commands.NoEffect {
		q.effects += by
	}
	if e.unseen() {
		q.unseen += by
	}
	q.held += by * e.held
}
