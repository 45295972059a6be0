package main

import "time"

// alone is one client that takes and releases a lock while nobody else does anything.
type alone struct {
	contest
	time time.Duration
}

func newAlone(d time.Duration) *alone {
	return &alone{time: d, contest: newContest(1,
		lockRaw("lockproxy: LOCK + UNLOCK", 1, false),
		pollerAt("SET NX PX + compare-and-delete, directly",
			func(f *field) string { return f.redis }),
		pollerAt("SET NX PX + compare-and-delete through HAProxy", behindHAProxy),
	)}
}

func (j *alone) title() string { return "One client" }

func (j *alone) measure(b *bench, i int) error {
	return j.lock(b, i, j.time+stallAfter, drive{time: j.time})
}

func (j *alone) sections() []*section {
	s := &section{
		title: "A lock, one client",
		before: "One light client takes and releases its lock, again and again, and nobody else " +
			"does anything. Microseconds from a request until its reply.",
		header: []string{"", "LOCK, median", "p99", "UNLOCK, median", "p99"},
	}
	for i, c := range j.contenders {
		row := []string{c.name}
		for _, of := range []func(*outcome) durations{(*outcome).waits, (*outcome).releases} {
			for _, q := range []float64{0.5, 0.99} {
				row = append(row, spread(j.results[i], "%.0f",
					func(o *outcome) float64 { return us(of(o).at(q)) }))
			}
		}
		s.row(row...)
	}
	return []*section{s}
}
