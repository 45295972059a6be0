package fifo

import "unsafe"

// maxIdle is how much memory an empty queue keeps, bytes.
const maxIdle = 8 << 10

// Queue is a queue. Its zero value is empty. Pointers to its elements hold until the next Push or Pop.
type Queue[T any] struct {
	list  []T
	first int // index of the first element in the queue
}

// Len is how many elements there are.
func (q *Queue[T]) Len() int { return len(q.list) - q.first }

// All is all elements, the first one first.
func (q *Queue[T]) All() []T { return q.list[q.first:] }

// Push adds an element at the end.
func (q *Queue[T]) Push(v T) {
	if 2*q.first >= len(q.list) && len(q.list) == cap(q.list) { // otherwise it grows
		n := copy(q.list, q.list[q.first:])
		clear(q.list[n:])
		q.list, q.first = q.list[:n], 0
	}
	q.list = append(q.list, v)
}

// Head is the first element; nil if there is none.
func (q *Queue[T]) Head() *T {
	if q.Len() == 0 {
		return nil
	}
	return &q.list[q.first]
}

// Last is the last element; nil if there is none.
func (q *Queue[T]) Last() *T {
	if q.Len() == 0 {
		return nil
	}
	return &q.list[len(q.list)-1]
}

// Pop removes the first element; ok is false if there is none.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if q.Len() == 0 {
		return v, false
	}
	var none T
	v, q.list[q.first] = q.list[q.first], none
	q.first++
	q.shrink()
	return v, true
}

// DropLast removes the last element, which there must be.
func (q *Queue[T]) DropLast() {
	var none T
	*q.Last() = none
	q.list = q.list[:len(q.list)-1]
	q.shrink()
}

// shrink begins again when nothing is left, with little memory.
func (q *Queue[T]) shrink() {
	var one T
	switch {
	case q.Len() > 0:
	case uintptr(cap(q.list))*unsafe.Sizeof(one) > maxIdle:
		*q = Queue[T]{}
	default:
		q.list, q.first = q.list[:0], 0
	}
}

// PopAll removes all elements.
func (q *Queue[T]) PopAll() []T {
	list := q.All()
	*q = Queue[T]{}
	return list
}
