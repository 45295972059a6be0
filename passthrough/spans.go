package passthrough

// run is a number of replies in a row that go to one session.
type span struct {
	client  *client
	replies int
}

// runs is a queue of them. It is pure: no I/O, no clock, no lock. Its zero value is empty.
type spanQueue struct {
	list  []span
	first int // those before it are done
}

// push adds a run at the end, to the last one if that is of the same session.
func (q *spanQueue) push(r span) {
	if last := len(q.list) - 1; last >= q.first && q.list[last].client == r.client {
		q.list[last].replies += r.replies
		return
	}
	if q.first > 0 && len(q.list) == cap(q.list) {
		n := copy(q.list, q.list[q.first:])
		clear(q.list[n:])
		q.list, q.first = q.list[:n], 0
	}
	q.list = append(q.list, r)
}

// pop removes the first; ok is false if there is none.
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

// takeAll empties the queue.
func (q *spanQueue) takeAll() []span {
	list := q.list[q.first:]
	*q = spanQueue{}
	return list
}
