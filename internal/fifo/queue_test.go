package fifo

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		var model []int
		for i := range rapid.IntRange(0, 300).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step < 5:
				q.Push(i)
				model = append(model, i)
			case step == 9:
				if got := q.PopAll(); !slices.Equal(got, model) {
					t.Fatalf("PopAll: %v, want %v", got, model)
				}
				model = nil
			case step == 8 && len(model) > 0:
				q.DropLast()
				model = model[:len(model)-1]
			default:
				v, ok := q.Pop()
				if ok != (len(model) > 0) || ok && v != model[0] {
					t.Fatalf("Pop: %d, %v, of %v", v, ok, model)
				}
				model = model[min(1, len(model)):]
			}
			checkEnds(t, &q, model)
		}
	})
}

func checkEnds(t *rapid.T, q *Queue[int], model []int) {
	n, head, last := len(model), q.Head(), q.Last()
	if q.Len() != n || !slices.Equal(q.All(), model) || (head == nil) != (n == 0) ||
		n > 0 && (*head != model[0] || *last != model[n-1]) {
		t.Fatalf("%v from %v to %v, want %v", q.All(), head, last, model)
	}
}

// A queue keeps little memory when it is empty, and does not grow while elements come and go.
func TestMemory(t *testing.T) {
	var q Queue[[128]byte]
	for range 10_000 {
		q.Push([128]byte{})
	}
	for range 100_000 {
		q.Push([128]byte{})
		q.Pop()
	}
	if got := cap(q.list); got > 25_000 {
		t.Errorf("room for %d elements, of which there are 10,000", got)
	}
	for range 10_000 {
		q.Pop()
	}
	if got := cap(q.list) * 128; got > maxIdle {
		t.Errorf("%d bytes are kept", got)
	}
}
