package cluster

// MULTI: a transaction is one node's, and all its keys are in one slot.

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// transaction is a MULTI and what follows it up to its EXEC. It begins at the default node and
// moves to the node of its first key. Its requests are recorded, so that another node can run them
// if this one turns out not to have the keys any more: then none of them has run. Conn.mu is held
// in all methods.
type transaction struct {
	c       *Conn
	node    *node
	slot    int      // of its keys; -1 before the first
	key     []byte   // the first
	watches bool     // it has a WATCH, which nodes refuse
	raws    [][]byte // the queued requests
	size    int      // bytes of raws
	lost    bool     // raws does not have all of them
	begun   bool     // its MULTI is answered
	refused bool     // with an error: what follows runs at once, and a script's error is its own
	guarded bool     // a WATCH was in force, which only its node knows
	void    bool     // that WATCH was not sent yet, or has ended, so EXEC does nothing
	moved   bool     // a node has said that a key is another's
	askAt   string   // the node that its node has named in an ASK; "" if none
	caching []byte   // CLIENT CACHING for it; nil if none
	sending bool     // what its node is sent now belongs to it
	paused  bool     // its node does not know of it, see giveWay
}

// txState is a client's transaction: the open MULTI, and WATCH. Conn.mu is held in all methods.
type txState struct {
	c       *Conn
	open    *transaction // nil outside of MULTI
	watched watched
	caching []byte // CLIENT CACHING for the next request; nil if none
}

// watched is a WATCH that is in force.
type watched struct {
	part *part // the first WATCH; nil if nothing is watched
	node *node // nil until it is sent
	slot int
	more bool // another WATCH was sent to the same node
	// asking says that an ASK has led to the node, which refuses what comes without ASKING.
	asking bool
}

// restsOn reports whether n has an open transaction, or something watched.
func (tx *txState) restsOn(n *node) bool {
	return tx.watched.node == n || tx.open != nil && tx.open.node == n
}

// forgetWatch is for EXEC, DISCARD and the like, which end the watch at its node, unless the WATCH
// was not sent yet.
func (tx *txState) forgetWatch() {
	w := tx.watched
	tx.watched = watched{}
	if w.part != nil && w.node == nil {
		r := tx.c.ownRequest(unwatchCommand)
		r.one.slot = w.slot
		tx.c.dispatch(&r.one)
	}
}

// maxQueued is how many bytes of a transaction are recorded.
const maxQueued = 1 << 20

var (
	multiCommand   = resp.AppendCommand(nil, "MULTI")
	execCommand    = resp.AppendCommand(nil, "EXEC")
	discardCommand = resp.AppendCommand(nil, "DISCARD")
	unwatchCommand = resp.AppendCommand(nil, "UNWATCH")
	// abortCommand is refused by every Redis, which aborts the transaction.
	abortCommand = resp.AppendCommand(nil, "GET")
	watchInMulti = []byte("-ERR WATCH inside MULTI is not allowed\r\n")
	queuedReply  = []byte("+QUEUED\r\n")
	lateKey      = resp.AppendError(nil, "ERR the first key of a transaction on a cluster must come "+
		"within its first "+strconv.Itoa(maxQueued>>20)+" MiB: it tells which node runs it")
)

// multi is MULTI outside of a transaction.
func multi(c *Conn, q *query) {
	if len(q.args) > 1 {
		toDefault(c, q) // it is refused
		return
	}
	t := &transaction{c: c, slot: -1, caching: c.tx.caching}
	if w := c.tx.watched; w.part != nil {
		t.node, t.slot, t.guarded, t.void = w.node, w.slot, true, w.node == nil
	}
	if t.node == nil {
		t.node = c.nodes.defaultNode()
	}
	c.tx.ask()
	r, first := t.send(q.raw, noRedirects), t.node
	r.finish = func(replies [][]byte) []byte {
		t.begun, t.refused = true, isError(replies[0])
		if t.refused && c.tx.open == t {
			c.tx.open = nil
			if t.node != first { // which has begun it
				t.abandon()
			}
		}
		return replies[0]
	}
	c.tx.open = t
}

// notWithinMulti reports whether a command can't be queued. Neither can those that go to several
// nodes, or set something for the connections to all.
func notWithinMulti(cmd *command) bool {
	switch cmd.Effect {
	case commands.Auth, commands.Hello, commands.Monitor, commands.UnknownState:
		return true
	}
	return cmd.Effect.Subscribes() || cmd.Name == "scan"
}

// add handles a request within the transaction.
func (t *transaction) add(q *query) {
	t.sending = true
	defer func() { t.sending = false }()
	if t.paused {
		t.paused = false
		t.begin(t.node)
	}
	switch name := q.cmd.Name; {
	case name == "exec":
		t.exec(q)
	case name == "discard" && len(q.args) == 1:
		t.discard(q)
	case name == "watch":
		t.watch(q)
	case name == "quit" || name == "reset" && len(q.args) == 1:
		q.cmd.route(t.c, q)
	case name == "multi" || name == "discard" || name == "reset": // refused; EXEC can fail for it
		t.send(q.raw, noRedirects)
		t.record(q.raw)
	case notWithinMulti(q.cmd):
		t.abort(notInMulti(name))
	case q.cmd.Nodes.Several():
		t.abort(notInMulti(string(q.args[0])))
	case q.cmd.Sets && !t.c.settings.equal(t.c.settings.with(q.cmd, q.args)):
		t.abort(notInMulti(strings.ToUpper(strings.ReplaceAll(name, "|", " "))))
	default:
		t.enqueue(q)
	}
}

func notInMulti(name string) []byte {
	return resp.AppendError(nil,
		"ERR "+name+" can't be part of a transaction on a cluster, which is run by one node")
}

// enqueue sends a request that EXEC is to run.
func (t *transaction) enqueue(q *query) {
	slot, at := t.c.in.slotOf(q)
	if slot == manySlots || slot >= 0 && t.slot >= 0 && slot != t.slot {
		t.abort(crossSlotReply)
		return
	}
	if slot >= 0 && t.slot < 0 {
		if t.size > maxQueued { // by chance it may be at the right node
			t.abort(lateKey)
			return
		}
		t.slot, t.key = slot, slices.Clone(q.args[at[0]])
		t.goTo(slot)
	}
	t.send(q.raw, func(n *node, p *part, line []byte) bool {
		kind, slot, addr := parseRedirect(line, n.addr)
		if kind == notRedirected || t.refused {
			return false
		}
		if t.moved = true; kind == ask {
			t.askAt = addr
		}
		if kind == moved && t.slot < 0 { // by a command whose keys the proxy doesn't see
			t.slot = slot
			t.c.nodes.applyMap(t.c.cluster.slotMoved(slot, addr))
		}
		t.c.answers.partDone(p, queuedReply)
		return true
	})
	t.record(q.raw)
}

// goTo begins the transaction again at the node of a slot, unless it is there.
func (t *transaction) goTo(slot int) {
	if n := t.c.nodes.forSlot(slot); n != t.node {
		t.abandon()
		t.begin(n)
	}
}

func (t *transaction) record(raw []byte) {
	t.size += len(raw)
	if t.size > maxQueued || t.lost {
		t.raws, t.lost = nil, true
		return
	}
	t.raws = append(t.raws, append([]byte(nil), raw...))
}

// send sends a request of the client's to the transaction's node. intercept is called with an error
// before the client gets it; true says that it was dealt with.
func (t *transaction) send(raw []byte, intercept func(*node, *part, []byte) bool) *request {
	r := newRequest(raw, -1)
	r.intercept = intercept
	r.onFailure = func() { t.lost = true } // EXEC must fail
	return t.c.send(r, t.node)
}

// abort answers a command that can't be queued, and makes EXEC fail.
func (t *transaction) abort(text []byte) {
	r := t.send(abortCommand, noRedirects)
	r.finish = func([][]byte) []byte { return text }
	t.lost = true
}

// abandon ends the transaction at its node, also for a user that may not DISCARD.
func (t *transaction) abandon() {
	t.node.sendOwn(abortCommand)
	t.node.sendOwn(execCommand)
}

// elsewhere reports whether its node is not the one to run it any more, or not yet.
func (t *transaction) elsewhere() bool {
	return t.slot >= 0 && !t.guarded &&
		(t.c.order.holds[t.slot] != nil || t.c.nodes.forSlot(t.slot) != t.node)
}

// begin sends the transaction so far to n. ASKING is remembered until EXEC.
func (t *transaction) begin(n *node) {
	switch { // each must come right before MULTI
	case t.askAt == n.addr:
		n.sendOwn(askingCommand)
	case t.caching != nil:
		n.sendOwn(t.caching)
	}
	t.node, t.moved, t.askAt = n, false, ""
	n.sendOwn(multiCommand)
	if t.watches && t.key != nil {
		n.sendOwn(resp.AppendCommand(nil, []byte("WATCH"), t.key))
	}
	for _, raw := range t.raws {
		r := t.c.ownRequest(raw)
		r.intercept = func(n *node, _ *part, line []byte) bool {
			kind, _, addr := parseRedirect(line, n.addr)
			if t.moved = t.moved || kind != notRedirected; kind == ask {
				t.askAt = addr
			}
			return false
		}
		n.push(&r.one)
	}
	if t.lost {
		n.sendOwn(abortCommand)
	}
}

// giveWay ends the transaction at its node, which is about to be sent an earlier request again, or
// a request of the Conn's own. The client's next request begins the transaction again. A WATCH ends
// with it.
func (t *transaction) giveWay() {
	t.paused, t.void = true, t.guarded
	t.abandon()
}

// discard is DISCARD. EXEC behind it ends the transaction for a user that may not DISCARD, which
// has aborted it.
func (t *transaction) discard(q *query) {
	t.c.tx.open = nil
	t.c.tx.forgetWatch()
	t.send(q.raw, noRedirects)
	t.node.sendOwn(execCommand)
}

// nullReply is the answer of EXEC when a watched key has changed.
func (t *transaction) nullReply() []byte {
	if t.c.settings.proto == 3 {
		return []byte("_\r\n")
	}
	return []byte("*-1\r\n")
}

// exec ends the transaction. If its node has not run it because another has the keys, that one
// does. If something was watched, the answer is as if that had changed, since nobody knows.
func (t *transaction) exec(q *query) {
	c := t.c
	c.tx.open = nil
	c.tx.forgetWatch()
	if t.void {
		r := t.send(discardCommand, noRedirects)
		r.finish = func([][]byte) []byte { return t.nullReply() }
		t.node.sendOwn(execCommand)
		return
	}
	r := newRequest(q.raw, t.slot)
	r.keyless = true // or it can be
	r.intercept = func(n *node, p *part, line []byte) bool {
		kind, slot, addr := parseRedirect(line, n.addr)
		if kind == notRedirected && !(t.moved && bytes.HasPrefix(line, []byte("EXECABORT"))) {
			return false
		}
		if kind == moved || kind == ask {
			t.slot = slot
		}
		if kind == ask {
			t.askAt = addr
		}
		p.slot = t.slot
		p.tries++
		dealt := true
		switch {
		case t.guarded:
			c.answers.partDone(p, t.nullReply())
		case t.lost || p.tries > maxTries:
			c.order.giveUp(p)
			dealt = c.answers.notFollowed(p, kind)
		case t.askAt != "" && c.order.inTurn(p):
			r.beforeSend = t.begin
			c.nodes.at(t.askAt).push(p)
		default:
			r.beforeSend = t.begin
			c.order.wait(p, true) // later requests may not overtake it
		}
		if kind == moved {
			c.nodes.applyMap(c.cluster.slotMoved(slot, addr))
		}
		c.refreshMap()
		return dealt
	}
	to := t.node
	if t.elsewhere() {
		t.abandon()
		r.beforeSend, to = t.begin, nil
	}
	c.send(r, to)
}
