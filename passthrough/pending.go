package passthrough

import (
	"bytes"
	"slices"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// pendingQueue is what one client is owed, in the order of its requests, and the state of its home.
// It is pure: no I/O, no clock, no lock.
type pendingQueue struct {
	State
	replyFIFO
	// MONITORs after the first one that may still be refused; otherwise they get no reply
	monitorAgain int
	// told when uncounted requests that show numbers have been answered; nil if there are none
	showing *numbers
}

// uncounted reports whether the reply to e, the next in the queue, can't be told from others, or
// will not come: Redis ignores a second MONITOR. While the connection is Untracked, only RESET's
// reply can be told (or an error that names it); while it is Streaming, none.
func (q *pendingQueue) uncounted(e *pendingReply) bool {
	switch {
	case q.Has(Streaming):
		return e.awaitsReply() && e.kind != internal && e.Effect != commands.Replicate
	case !q.empty() && q.head() != e || !e.awaitsReply() || e.kind == internal:
		return false
	case q.Has(Untracked):
		return e.Effect != commands.Reset
	}
	return q.Has(monitoring) && !q.Has(InMulti) && !q.Subscribed() && e.Effect == commands.Monitor &&
		e.Count == 0
}

// databases is Pipe.Databases.
func (q *pendingQueue) databases() []int {
	list := []int{q.DB}
	add := func(e *Expect) {
		switch {
		case e.Effect == commands.Reset:
			list = append(list, q.initial.DB)
		case e.Effect == commands.Select && e.Change != nil:
			list = append(list, e.Change.DB)
		}
	}
	for i := range q.queued {
		add(&q.queued[i].Expect)
	}
	for i, all := 0, q.entries.All(); i < len(all) && q.effects > 0; i++ {
		if all[i].kind == relayed {
			add(&all[i].Expect)
		}
	}
	return list
}

// skipUncounted records an uncounted request, which gets no entry.
func (q *pendingQueue) skipUncounted(e *pendingReply) {
	q.set(skipNext, false)
	if e.shows != nil && q.showing == nil {
		q.showing = e.shows
		q.showing.asks()
	}
	if e.Effect == commands.Monitor && !q.Has(Untracked) {
		q.monitorAgain++
	}
}

func (q *pendingQueue) push(e pendingReply) {
	if q.uncounted(&e) {
		q.skipUncounted(&e)
		return
	}
	if last := q.entries.Last(); last != nil && last.isPlain() && e.isPlain() {
		last.count += e.replies()
	} else {
		q.add(e)
	}
}

// destination says where the reply goes whose first byte is kind. It also detects the beginning of
// a replication stream.
func (q *pendingQueue) destination(kind byte) replyKind {
	e := q.head()
	if e != nil && e.Effect == commands.Replicate && kind != '-' && kind != '>' {
		q.set(Streaming, true)
	}
	switch {
	case kind == '*' && q.mutedPing():
		return discarded
	case q.Has(Streaming|Untracked) || kind == '>' || kind == '*' && q.Subscribed():
		return relayed
	case e == nil:
		return relayed
	case e.kind != relayed:
		return e.kind
	case e.Effect.Subscribes() && kind == '*':
		return relayed // Redis sends confirmations even under CLIENT REPLY OFF
	case kind == '+' && !q.Has(InMulti) && e.Effect == commands.ReplyOn:
		return relayed // SKIP doesn't hide it
	case q.Has(skipNext):
		return discarded
	case kind == '+' && !q.Has(InMulti) && (e.Effect == commands.ReplyOff ||
		e.Effect == commands.ReplySkip):
		return discarded // the OK of the CLIENT REPLY ON that was sent in its place
	case kind == '+' && e.Effect == commands.Reset:
		return relayed // it ends OFF before the reply
	case q.Has(replyOff):
		return discarded
	}
	return relayed
}

// unasked reports whether nothing is expected that begins with kind: neither a reply, nor what
// comes without a request.
func (q *pendingQueue) unasked(kind byte) bool {
	switch {
	case !q.empty(), q.Has(Streaming | Untracked), kind == '>':
		return false
	case kind == '*':
		return !q.Subscribed()
	}
	return !q.Has(monitoring)
}

// mutedPing reports whether an array can be the reply to a PING, which CLIENT REPLY OFF hides. In
// RESP2's subscribe mode that is an array, as confirmations and messages are, which nothing hides.
func (q *pendingQueue) mutedPing() bool {
	e := q.head()
	return q.Has(replyOff) && !q.Has(Untracked) && q.Subscribed() && e != nil && e.kind == relayed &&
		e.Effect == commands.NoEffect
}

// nextIsPlain reports whether the next reply goes to the client and changes nothing, unless it is
// an error or a push, and nothing waits for it but further replies.
func (q *pendingQueue) nextIsPlain() bool {
	e := q.head()
	return e != nil && e.kind == relayed && e.Effect == commands.NoEffect && e.Replied == nil &&
		q.Admitted && !q.Has(repliesDiffer&^subscribed) &&
		(e.count > 1 || q.len() == 1 || q.entries.All()[1].awaitsReply())
}

// complete records a whole reply. It returns the entry that it answered, for the caller to act on
// its local or answer. ok is false for what answers nothing: pushes, messages and MONITOR's lines.
func (q *pendingQueue) complete(h resp.Head) (e pendingReply, ok bool) {
	switch {
	case q.Has(Streaming):
		return pendingReply{}, false
	case q.Has(Untracked):
		if e := q.head(); e != nil && e.Effect == commands.Reset &&
			(h.Type == '+' && string(h.Line) == "RESET" ||
				h.IsError() && bytes.Contains(h.Line, []byte("'reset'"))) {
			return q.answered(h)
		}
		return pendingReply{}, false
	case h.Type == '>' || h.Type == '*':
		head := q.head()
		if kind := commands.Confirmation(h.Elem); kind != commands.NoEffect &&
			(h.Type == '>' || q.Subscribed() || head != nil && head.Effect.Subscribes()) {
			q.confirm(kind, h)
			return pendingReply{}, false
		}
		if h.Type == '>' || q.Subscribed() && commands.IsMessage(h.Elem) {
			return pendingReply{}, false
		}
	case h.Type == '+' && q.Has(monitoring) && commands.IsMonitorLine(h.Line):
		return pendingReply{}, false
	case q.monitorAgain > 0 && h.IsError() && bytes.HasPrefix(h.Line, []byte("NOPERM")) &&
		bytes.Contains(h.Line, []byte("'monitor'")):
		q.monitorAgain--
		return pendingReply{}, false
	}
	return q.answered(h)
}

func (q *pendingQueue) confirm(kind commands.Effect, h resp.Head) {
	e := q.head()
	if e != nil && e.Effect == kind {
		q.admit(kind, h)
		if e.Count >= 0 {
			e.count = q.subscriptions.Confirmations(kind, e.Count)
			e.Count = -1 // counted
		}
		if e.count--; e.count == 0 {
			q.set(skipNext, false)
			q.pop()
		}
	}
	q.subscriptions.Confirmed(kind, h.Last)
	q.set(subscribed, q.subscriptions.All() > 0)
}

func (q *pendingQueue) answered(h resp.Head) (pendingReply, bool) {
	e := q.head()
	if e == nil {
		return pendingReply{}, false
	}
	q.monitorAgain = 0 // replies come in order: earlier MONITORs got none
	q.shown()
	if e.kind == relayed {
		q.set(skipNext, false)
		doubtful := e.Effect == commands.Exec && hasRun(h) && q.lacksLogin()
		q.apply(e.Expect, h)
		if doubtful {
			q.set(Untracked|stickyState, true)
		}
	} else {
		q.admit(commands.NoEffect, h)
		if e.Effect == logsIn && h.IsError() {
			q.set(LoginFailed, true)
			q.Admitted = false
		}
	}
	done := *e
	if e.count--; e.count == 0 || e.Effect.Subscribes() {
		q.pop()
	}
	return done, true
}

// lacksLogin reports whether the reply to EXEC, the next in the queue, can have taken others' replies
// for its own: Redis as of 7.2 and Valkey leave out that they refuse a login within EXEC, but count
// it in the array.
func (q *pendingQueue) lacksLogin() bool {
	othersReply := q.Has(monitoring) || slices.ContainsFunc(q.entries.All()[1:],
		func(e pendingReply) bool { return e.awaitsReply() })
	return othersReply && slices.ContainsFunc(q.queued, func(e queuedExpect) bool {
		return e.Effect == commands.Auth ||
			e.Effect == commands.Hello && (e.Change == nil || e.Change.LoggedIn)
	})
}

// shown records that everything that was sent has been answered, or will not be.
func (q *pendingQueue) shown() {
	if q.showing != nil {
		q.showing.answered()
		q.showing = nil
	}
}

// popReady pops the next entry if it waits for no reply, after entries that are uncounted.
func (q *pendingQueue) popReady() (e pendingReply, ok bool) {
	head := q.head()
	for head != nil && q.uncounted(head) {
		q.skipUncounted(head)
		q.pop()
		head = q.head()
	}
	if head == nil || head.awaitsReply() {
		return pendingReply{}, false
	}
	done := *head
	q.pop()
	return done, true
}
