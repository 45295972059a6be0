//go:build !race

package passthrough

import (
	"testing"

	"pgregory.net/rapid"

	"lockproxy/internal/fifo"
)

// Spans are a queue of replies, each of which knows whose it is.
func TestSpansAgainstModel(t *testing.T) {
	pipes := []*client{{}, {}, {}}
	rapid.Check(t, func(t *rapid.T) {
		var q fifo.Queue[span]
		var model []*client // of each reply that is due
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "step") > 0 {
				p, n := rapid.SampledFrom(pipes).Draw(t, "pipe"),
					rapid.IntRange(1, 3).Draw(t, "replies")
				pushSpan(&q, span{p, n})
				for range n {
					model = append(model, p)
				}
				continue
			}
			model = checkSpans(t, &q, model)
		}
		if rapid.Bool().Draw(t, "all at once") {
			for _, r := range q.PopAll() {
				model = checkOneSpan(t, r, model)
			}
		}
		for len(model) > 0 {
			model = checkSpans(t, &q, model)
		}
		if r, ok := q.Pop(); ok || len(q.PopAll()) > 0 {
			t.Fatalf("%v is left", r)
		}
	})
}

func checkSpans(t *rapid.T, q *fifo.Queue[span], model []*client) []*client {
	r, ok := q.Pop()
	if ok != (len(model) > 0) {
		t.Fatalf("pop: %v with %d replies due", ok, len(model))
	}
	if !ok {
		return model
	}
	return checkOneSpan(t, r, model)
}

func checkOneSpan(t *rapid.T, r span, model []*client) []*client {
	for range r.replies {
		if len(model) == 0 || model[0] != r.client {
			t.Fatal("a span of another's")
		}
		model = model[1:]
	}
	return model
}
