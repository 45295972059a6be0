package held

import "container/heap"

// expiry has the locks of a shard, the one that ends first in front: so those that have expired are
// found without a look at the others. A lock may end later than is noted here, if it was renewed:
// that is seen when it comes to the front. Callers hold the shard's mu.
type expiry []*Lock

// add notes a lock.
func (e *expiry) add(lock *Lock) {
	lock.due = lock.Until.Load()
	heap.Push(e, lock)
}

func (e *expiry) remove(lock *Lock) { heap.Remove(e, lock.place) }

// sooner notes that a lock ends at a time, if that is sooner than is noted.
func (e *expiry) sooner(lock *Lock, until int64) {
	if until < lock.due {
		lock.due = until
		heap.Fix(e, lock.place)
	}
}

// before returns a lock that has ended before a time, nil if there is none.
func (e *expiry) before(when int64) *Lock {
	for len(*e) > 0 && (*e)[0].due < when {
		first := (*e)[0]
		if first.due = first.Until.Load(); first.due < when {
			return first
		}
		heap.Fix(e, 0)
	}
	return nil
}

// These implement heap.Interface.

func (e expiry) Len() int { return len(e) }

func (e expiry) Less(i, j int) bool { return e[i].due < e[j].due }

func (e expiry) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].place, e[j].place = i, j
}

func (e *expiry) Push(lock any) {
	lock.(*Lock).place = len(*e)
	*e = append(*e, lock.(*Lock))
}

func (e *expiry) Pop() any {
	last := len(*e) - 1
	lock := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return lock
}
