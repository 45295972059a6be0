package passthrough

// span is a number of consecutive replies for one client.
type span struct {
	client  *client
	replies int
}

// spanQueue says to which client the next replies of a lane go. It is pure; the zero one is empty.
type spanQueue struct {
	list  []span
	first int // index of the first one in the queue
}

// push adds a span at the end, or to the last one if that has the same client.
func (q *spanQueue) push(r span) {
	if last := len(q.list) - 1; last >= q.first && q.list[last].client == r.client {
		q.list[last].replies += r.replies
		return
	}
	if 2*q.first >= len(q.list) && len(q.list) == cap(q.list) { // otherwise it grows
		n := copy(q.list, q.list[q.first:])
		clear(q.list[n:])
		q.list, q.first = q.list[:n], 0
	}
	q.list = append(q.list, r)
}

// pop removes the first span; ok is false if there is none.
func (q *spanQueue) pop() (r span, ok bool) {
	if q.first == len(q.list) {
		return span{}, false
	}
	r = q.list[q.first]
	q.list[q.first] = span{}
	q.first++
	if q.first == len(q.list) {
		q.list, q.first = q.list[:0], 0
	}
	return r, true
}

// popAll removes all spans.
func (q *spanQueue) popAll() []span {
	list := q.list[q.first:]
	*q = spanQueue{}
	return list
}
