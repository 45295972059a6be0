package cluster

import "lockproxy/internal/resp"

// request is one of the client's, or one of the Conn's own. The client's stand in the queue until their replies have been read.
type request struct {
	next  *request // in the queue
	one   part     // its only part, unless parts says otherwise
	parts []*part  // of one that goes to several nodes
	left  int      // parts without an answer
	// finish makes the reply out of those of the parts; nil gives the only part's as it comes. It is called once, with Conn.mu held.
	finish func(replies [][]byte) []byte
	// intercept is called with a node's error before it becomes the answer, or is followed to another node; true says that it has
	// been dealt with. A request with one is not sent elsewhere but by it.
	intercept func(p *part, line []byte) bool
	each      func(n *node, p *part, h resp.Head) // is called with each part's answer
	before    func(n *node)                       // is called when n is about to be asked, and may ask it for something first
	txn       *transaction                        // what it is within; nil if it is within none
	hidden    bool                                // the Conn's own: it isn't in the queue
	follows   bool                                // it goes where nodes say though it is hidden
	void      bool                                // it is not answered any more, nor is what comes behind it
	read      bool                                // it is not in the queue any more
	out       pieces                              // what the client is to be given and hasn't been
	began     bool                                // the client has been given some of the reply
	held      int                                 // bytes of the parts that have been answered while others have not
	done      bool                                // out is all that there is
}

// part is what one node is asked for a request.
type part struct {
	req    *request
	raw    []byte // what is sent, kept so that it can be sent elsewhere; nil if it wasn't kept
	slot   int    // of its keys; -1 if it has none, or nobody knows
	node   *node  // where it waits for its answer; nil if nowhere
	tries  int    // how often it has been sent elsewhere
	asking bool   // ASKING goes before it
	reply  pieces // of a request with finish, once it is there
	// confirms is how many confirmations it gets, for SUBSCRIBE and its like; else 0.
	confirms int
	passed   bool // some of the reply was given to the request before all was there
}

// newRequest is a request of one part.
func newRequest(raw []byte, slot int) *request {
	r := &request{left: 1}
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

// partQueue is the parts that wait for a node's answers, in order. Its zero value is empty.
type partQueue struct {
	list  []*part
	first int
}

func (q *partQueue) len() int { return len(q.list) - q.first }

func (q *partQueue) push(p *part) {
	if q.first > 0 && len(q.list) == cap(q.list) {
		n := copy(q.list, q.list[q.first:])
		clear(q.list[n:])
		q.list, q.first = q.list[:n], 0
	}
	q.list = append(q.list, p)
}

// head is nil if there is none.
func (q *partQueue) head() *part {
	if q.first == len(q.list) {
		return nil
	}
	return q.list[q.first]
}

func (q *partQueue) pop() *part {
	p := q.list[q.first]
	q.list[q.first] = nil
	q.first++
	if q.first == len(q.list) {
		q.list, q.first = q.list[:0], 0
	}
	return p
}

// all is those in the queue.
func (q *partQueue) all() []*part { return q.list[q.first:] }
