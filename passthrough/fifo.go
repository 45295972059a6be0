package passthrough

import (
	"slices"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/fifo"
)

// replyFIFO is the pending replies, and what they are together. Its zero value is empty.
type replyFIFO struct {
	entries fifo.Queue[pendingReply]
	unseen  int // entries of which the client gets nothing
	effects int // entries with an Effect
	held    int // bytes that the entries keep in memory

	blockedUntil time.Time // when the last entry that blocks was removed
}

func (q *replyFIFO) empty() bool { return q.entries.Len() == 0 }

// owes reports whether the client is owed a visible reply.
func (q *replyFIFO) owes() bool { return q.len() > q.unseen }

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
