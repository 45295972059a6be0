package passthrough

import (
	"slices"

	"lockproxy/internal/commands"
)

// replyFIFO is a queue of pending replies. Its zero value is empty.
type replyFIFO struct {
	entries []pendingReply
	first   int // index of the first entry in the queue
	unseen  int // entries of which the client gets nothing
	effects int // entries with an Effect
	held    int // bytes that the entries keep in memory
}

// maxIdleEntries is for how many entries an empty queue keeps memory.
const maxIdleEntries = 64

func (q *replyFIFO) empty() bool { return q.first == len(q.entries) }

// owes reports whether the client is owed a visible reply.
func (q *replyFIFO) owes() bool { return q.len() > q.unseen }

// relaysOnly reports whether there are entries, and the session waits for none of them itself.
func (q *replyFIFO) relaysOnly() bool {
	return !q.empty() && !slices.ContainsFunc(q.entries[q.first:], func(e pendingReply) bool {
		return e.answer != nil
	})
}

// blocks reports whether an entry can wait for what another client does.
func (q *replyFIFO) blocks() bool {
	return slices.ContainsFunc(q.entries[q.first:], func(e pendingReply) bool { return e.Blocks })
}

// replies is how many replies are missing.
func (q *replyFIFO) replies() (n int) {
	for i := range q.entries[q.first:] {
		n += q.entries[q.first+i].replies()
	}
	return n
}

// len returns the number of entries, not of replies.
func (q *replyFIFO) len() int { return len(q.entries) - q.first }

// add adds an entry at the end.
func (q *replyFIFO) add(e pendingReply) {
	if e.Effect != commands.NoEffect {
		q.effects++
	}
	q.held += e.held
	if e.shows != nil {
		e.shows.asks()
	}
	e.count = e.replies()
	if e.unseen() {
		q.unseen++
	}
	q.entries = append(q.entries, e)
}

// removeLast removes the last request, if it has not been answered.
func (q *replyFIFO) removeLast() {
	if q.empty() {
		return
	}
	last := &q.entries[len(q.entries)-1]
	if last.count--; last.count > 0 {
		return
	}
	if last.Effect != commands.NoEffect {
		q.effects--
	}
	q.held -= last.held
	if last.shows != nil {
		last.shows.answered()
	}
	*last = pendingReply{}
	q.entries = q.entries[:len(q.entries)-1]
}

func (q *replyFIFO) head() *pendingReply {
	if q.empty() {
		return nil
	}
	return &q.entries[q.first]
}

func (q *replyFIFO) pop() {
	if q.entries[q.first].Effect != commands.NoEffect {
		q.effects--
	}
	if q.entries[q.first].unseen() {
		q.unseen--
	}
	q.held -= q.entries[q.first].held
	if shows := q.entries[q.first].shows; shows != nil {
		shows.answered()
	}
	q.entries[q.first] = pendingReply{}
	q.first++
	switch {
	case q.empty() && cap(q.entries) > maxIdleEntries:
		q.entries, q.first = nil, 0
	case q.empty():
		q.entries, q.first = q.entries[:0], 0
	case q.first >= 1024 && q.first > len(q.entries)/2:
		q.entries = append(q.entries[:0], q.entries[q.first:]...)
		q.first = 0
	}
}
