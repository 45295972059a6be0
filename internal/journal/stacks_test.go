package journal

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockproxy/internal/names"
)

// Waits are blamed on holders: for holders that were given the lock here or elsewhere, before and
// after the wait began, and of clients that gave up or still wait.
func TestStacks(t *testing.T) {
	j, id, other := New(1<<20), names.Lock{DB: 0, Key: "job"}, names.Lock{DB: 1, Key: "job"}
	at := func(seconds int64) int64 { return 1000*minuteLength + seconds*second }
	who := func(name string) Holder { return Holder{Owner: name} }
	j.Acquired(id, who("anna"), 0, at(0))
	j.WaitBegan(id, at(1), at(1)) // bert
	j.WaitBegan(id, at(2), at(2)) // carl
	j.WaitBegan(id, at(3), at(3)) // dora, until the end
	j.WaitEnded(id, who("carl"), false, at(2), at(5))
	j.Ended(Released, id, who("anna"), Acquisition{}, at(0), at(6))
	j.WaitEnded(id, who("bert"), true, at(1), at(6))
	j.Acquired(id, who("bert"), 5*time.Second, at(6))
	j.Ended(Released, id, who("bert"), Acquisition{}, at(6), at(8))
	if j.WantsHolder(id, at(9)) {
		j.SetHolder(id, who("elsewhere"), at(9))
	}
	j.WaitBegan(other, at(4), at(4))
	list, since := j.Stacks([]Waiting{
		{id, who("dora"), at(3)}, {other, who("emil"), at(4)},
	}, at(10))
	want := []Stack{
		{"emil", other, "", 1, 6 * time.Second},
		{"bert", id, "anna", 1, 5 * time.Second},
		{"carl", id, "anna", 1, 3 * time.Second},
		{"dora", id, "anna", 0, 3 * time.Second},
		{"dora", id, "bert", 0, 3 * time.Second},
		{"dora", id, "elsewhere", 1, time.Second},
	}
	if !slices.Equal(list, want) || since != at(0) {
		t.Errorf("since %v:\n%v, want\n%v", time.Duration(since-at(0)), list, want)
	}
}

// Whatever happens, the stacks have each wait once, and their times add up to those of the waits.
func TestStacksAreTheSumOfWaitsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, now := New(1<<20), 100*minuteLength
		var waiting []Waiting
		total, waits := time.Duration(0), 0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += rapid.Int64Range(1, 20*second).Draw(t, "pause")
			id := names.Lock{DB: 0, Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")}
			who := Holder{Owner: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "who"))}
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				j.WaitBegan(id, now, now)
				waiting = append(waiting, Waiting{id, who, now})
			case 1:
				j.Ended(Released, id, who, Acquisition{}, now, now)
			case 2:
				j.Acquired(id, who, 0, now)
			case 3:
				if len(waiting) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
				w := waiting[i]
				waiting = slices.Delete(waiting, i, i+1)
				got := rapid.Bool().Draw(t, "got")
				j.WaitEnded(w.Lock, w.Holder, got, w.Since, now)
				if got {
					j.Acquired(w.Lock, w.Holder, time.Duration(now-w.Since), now)
				}
				total += time.Duration(now - w.Since)
				waits++
			}
		}
		now += second
		for _, w := range waiting {
			total += time.Duration(now - w.Since)
			waits++
		}
		list, _ := j.Stacks(waiting, now)
		for _, s := range list {
			total -= s.Wait
			waits -= s.Waits
		}
		if total != 0 || waits != 0 {
			t.Fatalf("%v and %d waits are missing in %v", total, waits, list)
		}
	})
}
