package cluster

import "lockproxy/internal/resp"

// request is one request of the client's, or one of the Conn's own. The client's are in the
// replyQueue until their replies have been read.
type request struct {
	next       *request // in the replyQueue
	one        part     // its only part if parts is nil
	parts      []*part  // of a request that goes to several nodes
	unanswered int      // parts without an answer
	turn       int64    // requests for the same slot run in its order
	hooks
	caching    []byte   // CLIENT CACHING for it, which each node is sent; nil if none
	script     bool     // it runs a script, or is DEBUG: an error can be its own
	keyless    bool     // any node runs it, though it has a slot
	internal   bool     // the Conn's own: it is not in the replyQueue
	copies     bool     // it is about the copies of events
	sharded    bool     // it is SSUBSCRIBE or SUNSUBSCRIBE
	unshards   bool     // it is SUNSUBSCRIBE
	push       bool     // it is a message that nobody has asked for
	subscribes bool     // or unsubscribes, as the client has asked
	dropped    bool     // neither it nor what comes behind it will be answered
	removed    bool     // it is not in the replyQueue any more
	started    bool     // the client has read some of the reply
	done       bool     // out has the end of the reply
	out        []byte   // what the client has still to read
	early      [][]byte // of a reply about sharded channels, behind those of earlier requests
	heldBytes  int      // of the replies that are joined
}

// hooks are what differs between requests. Each can be nil, and is called with Conn.mu held.
type hooks struct {
	// finish makes the reply out of those of the parts. nil relays the only part's.
	finish func(replies [][]byte) []byte
	// intercept is called with a node's error before it becomes the answer or is followed to
	// another node. true says that it was dealt with. A request with intercept follows no
	// redirections by itself.
	intercept func(n *node, p *part, line []byte) bool
	onAnswer  func(n *node, h resp.Head)
	// beforeSend is called before the request is sent to n, and can send something else first.
	beforeSend func(n *node)
	// onFailure is called when a node can't be reached, or is lost before it has answered.
	onFailure func()
}

// part is what one node is asked for a request.
type part struct {
	req   *request
	raw   []byte // what is sent; nil if it was streamed, and cannot be sent to another node
	slot  int    // of its keys; -1 if it has none, or its slot does not matter
	node  *node  // the node that is to answer; nil if none
	tries int    // how often it was sent again
	reply []byte // of a request with finish
	// confirms is how many confirmations of subscriptions are still to come; -1 is not known yet.
	confirms int
	streamed bool // some of the reply was delivered before its end came
	asking   bool // ASKING goes before it
	// refused is the answer of a node that may run later requests all the same: CLUSTERDOWN, or a
	// script's MOVED, which it can have made up. See slotOrder.ran.
	refused []byte
	movedBy *node // the node that has said MOVED last; nil if its last answer was another
	// doubtedAt is the node that has said which masters it knows, since its answer to the script
	// named an unknown one; "" if there was none. See learnFrom.
	doubtedAt string
}

// newRequest is a request of one part.
func newRequest(raw []byte, slot int) *request {
	r := &request{unanswered: 1}
	r.one = part{req: r, raw: raw, slot: slot}
	return r
}

// eachPart calls f for all parts.
func (r *request) eachPart(f func(p *part)) {
	if r.parts == nil {
		f(&r.one)
		return
	}
	for _, p := range r.parts {
		f(p)
	}
}

// noRedirects is the intercept of requests that follow no redirections: an error is the answer.
func noRedirects(*node, *part, []byte) bool { return false }
