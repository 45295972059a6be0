package passthrough

import (
	"bytes"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// entry is one thing that the client is owed, in the order of its requests.
type entry struct {
	Expect
	count  int       // replies still to come; runs of plain requests share one entry
	local  []byte    // a reply that the proxy made; sent in place of the upstream's if replaces, else on its own
	kind   entryKind // where the upstream's reply goes
	answer *Answer   // for captured and marker
}

type entryKind uint8

const (
	relayed  entryKind = iota // to the client
	captured                  // to answer
	hidden                    // nowhere
	replaced                  // nowhere; local goes to the client instead
	local                     // no reply comes from upstream; local goes to the client
	marker                    // no reply comes from upstream; answer is told that everything before has been answered
)

// awaitsReply reports whether the upstream will answer for this entry.
func (e *entry) awaitsReply() bool { return e.kind < local }

// unseen reports whether the client is to see nothing of it.
func (e *entry) unseen() bool { return e.kind == captured || e.kind == hidden }

// ledger is the queue of what is owed to one client, and the connection state that decides it. It
// is pure: no I/O, no clock, no lock.
type ledger struct {
	State
	entries []entry
	first   int // entries before it are done
	unseen  int // entries of which the client sees nothing among the rest
	effects int // entries with an Effect among the rest
	again   int // times that MONITOR was sent once more, and nothing behind it has been answered: it is answered only if it is refused
}

func (l *ledger) empty() bool { return l.first == len(l.entries) }

// owes reports whether the client is owed anything that it is to see.
func (l *ledger) owes() bool { return l.len() > l.unseen }

// len is the number of entries, not of replies.
func (l *ledger) len() int { return len(l.entries) - l.first }

// uncounted reports whether nobody can say when e, the next in the queue, will have been answered,
// or it will not be: Redis ignores a second MONITOR. While the connection is Opaque only RESET's
// reply can be told from others, and while it is Raw none.
func (l *ledger) uncounted(e *entry) bool {
	switch {
	case l.Raw:
		return e.awaitsReply() && e.kind != captured && e.Effect != commands.Replicate
	case !l.empty() && l.head() != e || !e.awaitsReply() || e.kind == captured:
		return false
	case l.Opaque:
		return e.Effect != commands.Reset
	}
	return l.monitor && !l.InMulti && !l.Subscribed() && e.Effect == commands.Monitor && e.Count == 0
}

// discount takes note of a request that is uncounted.
func (l *ledger) discount(e *entry) {
	l.skipNext = false
	if e.Effect == commands.Monitor && !l.Opaque {
		l.again++
	}
}

// unsure reports whether an error that comes next may be the reply of a request that mostly gets
// none.
func (l *ledger) unsure() bool {
	e := l.head()
	return l.again > 0 || e != nil && e.Effect == Uncertain
}

func (l *ledger) push(e entry) {
	if l.uncounted(&e) {
		l.discount(&e)
		return
	}
	if e.Effect != commands.NoEffect {
		l.effects++
	} else if e.kind == relayed && e.Accepted == nil && !l.empty() {
		last := &l.entries[len(l.entries)-1]
		if last.kind == relayed && last.Effect == commands.NoEffect && last.Accepted == nil {
			last.count += max(1, e.count)
			return
		}
	}
	if e.count == 0 {
		e.count = 1
	}
	if e.unseen() {
		l.unseen++
	}
	l.entries = append(l.entries, e)
}

// withdraw forgets the request pushed last, if it hasn't been answered already.
func (l *ledger) withdraw() {
	if l.empty() {
		return
	}
	last := &l.entries[len(l.entries)-1]
	if last.count--; last.count > 0 {
		return
	}
	if last.Effect != commands.NoEffect {
		l.effects--
	}
	*last = entry{}
	l.entries = l.entries[:len(l.entries)-1]
}

func (l *ledger) head() *entry {
	if l.empty() {
		return nil
	}
	return &l.entries[l.first]
}

// maxIdleEntries is how much of the queue's memory is kept when it is empty.
const maxIdleEntries = 64

func (l *ledger) pop() {
	if l.entries[l.first].Effect != commands.NoEffect {
		l.effects--
	}
	if l.entries[l.first].unseen() {
		l.unseen--
	}
	l.entries[l.first] = entry{}
	l.first++
	switch {
	case l.empty() && cap(l.entries) > maxIdleEntries:
		l.entries, l.first = nil, 0
	case l.empty():
		l.entries, l.first = l.entries[:0], 0
	case l.first >= 1024 && l.first > len(l.entries)/2:
		l.entries = append(l.entries[:0], l.entries[l.first:]...)
		l.first = 0
	}
}

// destination says where a reply goes whose first byte is kind. It also finds out whether what
// begins is no reply but a replication stream.
func (l *ledger) destination(kind byte) entryKind {
	if kind == '*' || kind == '%' {
		l.passOver()
	}
	e := l.head()
	if e != nil && e.Effect == commands.Replicate && kind != '-' && kind != '>' {
		l.Raw = true
	}
	switch {
	case l.Raw || l.Opaque || kind == '>' || kind == '*' && l.Subscribed():
		return relayed
	case e == nil:
		return relayed
	case e.kind != relayed:
		return e.kind
	case e.Effect.Subscribes() && kind == '*':
		return relayed // Redis sends confirmations even under CLIENT REPLY OFF
	case kind == '+' && !l.InMulti && e.Effect == commands.ReplyOn:
		return relayed // SKIP doesn't hide it
	case l.skipNext:
		return hidden
	case kind == '+' && !l.InMulti && (e.Effect == commands.ReplyOff || e.Effect == commands.ReplySkip):
		return hidden // the OK of the CLIENT REPLY ON that was sent in its place
	case kind == '+' && e.Effect == commands.Reset:
		return relayed // it ends OFF before it answers
	case l.replyOff:
		return hidden
	}
	return relayed
}

// relaysPlainly reports whether the next reply goes to the client and, unless it is an error or a
// push, changes nothing.
func (l *ledger) relaysPlainly() bool {
	e := l.head()
	return e != nil && e.kind == relayed && e.Effect == commands.NoEffect && l.Trusted && !l.skipNext && !l.replyOff && !l.InMulti &&
		!l.Raw && !l.Opaque && !l.monitor
}

// muted reports whether a reply that the proxy makes is to be left out now.
func (l *ledger) muted() bool { return l.replyOff || l.skipNext }

// finished takes note that a reply has been passed whole. It returns the entry that it answered,
// for the caller to act on its local or answer, and whether there is one: pushes, messages and
// MONITOR's feed answer nothing.
func (l *ledger) finished(h resp.Head) (e entry, ok bool) {
	switch {
	case l.Raw:
		return entry{}, false
	case l.Opaque:
		if e := l.head(); e != nil && e.Effect == commands.Reset && h.Type == '+' && string(h.Line) == "RESET" {
			return l.answered(h)
		}
		return entry{}, false
	case h.Type == '>' || h.Type == '*':
		if kind := commands.Confirmation(h.Elem); kind != commands.NoEffect && (h.Type == '>' || l.Subscribed() || l.headSubscribes()) {
			l.confirm(kind, h)
			return entry{}, false
		}
		if h.Type == '>' || l.Subscribed() && commands.IsMessage(h.Elem) {
			return entry{}, false
		}
	case h.Type == '+' && l.monitor && commands.IsMonitorLine(h.Line):
		return entry{}, false
	case l.again > 0 && h.IsError() && bytes.HasPrefix(h.Line, []byte("NOPERM")) && bytes.Contains(h.Line, []byte("'monitor'")):
		l.again--
		return entry{}, false
	case h.IsError() && bytes.HasPrefix(h.Line, []byte("ERR unknown command")) && bytes.HasPrefix(h.Line[min(len(h.Line), helloAt):], []byte("HELLO")):
		l.passOver()
	}
	return l.answered(h)
}

// helloAt is where the name stands in "ERR unknown command 'HELLO'…", which is what a Redis before
// 6.0 says to a probe.
const helloAt = len("ERR unknown command '")

// passOver drops a request that turns out to have got no reply, since that to the probe behind it
// has come.
func (l *ledger) passOver() {
	if e := l.head(); e != nil && e.Effect == Uncertain {
		l.skipNext = false
		l.pop()
	}
}

func (l *ledger) headSubscribes() bool {
	e := l.head()
	return e != nil && e.Effect.Subscribes()
}

func (l *ledger) confirm(kind commands.Effect, h resp.Head) {
	e := l.head()
	if e != nil && e.Effect == kind {
		l.trust(kind, h)
		if e.Count >= 0 {
			e.count = l.subscriptions.Confirmations(kind, e.Count)
			e.Count = -1 // counted
		}
		if e.count--; e.count == 0 {
			l.skipNext = false
			l.pop()
		}
	}
	l.subscriptions.Confirmed(kind, h.Last)
}

func (l *ledger) answered(h resp.Head) (entry, bool) {
	e := l.head()
	if e == nil {
		return entry{}, false
	}
	l.again = 0 // replies come in order: what was sent before this has got none
	if e.kind == relayed {
		l.skipNext = false
		l.apply(e.Expect, h)
	} else {
		l.trust(commands.NoEffect, h)
		l.marked = l.marked || e.Effect == logsIn && h.IsError()
	}
	done := *e
	if e.count--; e.count == 0 || e.Effect.Subscribes() {
		l.pop()
	}
	return done, true
}

// ready pops the next entry if it needs no reply from upstream, or if what it waits for can't be
// told from other replies.
func (l *ledger) ready() (e entry, ok bool) {
	head := l.head()
	for head != nil && l.uncounted(head) {
		l.discount(head)
		l.pop()
		head = l.head()
	}
	if head == nil || head.awaitsReply() {
		return entry{}, false
	}
	done := *head
	l.pop()
	return done, true
}
