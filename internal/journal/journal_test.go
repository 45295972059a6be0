//go:build !race

package journal

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockproxy/internal/names"
)

func all(*names.Lock) bool { return true }

const second = int64(time.Second)

// Whatever happens in whatever order, the blame of a lock's holders adds up to the waits for it,
// with those that go on.
func TestBlameIsTheSumOfWaitsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := New(1 << 20)
		type wait struct {
			id    names.Lock
			began int64
		}
		var waits []wait
		sums := map[names.Lock]time.Duration{}
		now := 100 * minuteLength
		until := now + 55*minuteLength
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = min(until, now+rapid.Int64Range(0, 40*second).Draw(t, "pause"))
			id := names.Lock{DB: 0, Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")}
			holder := Holder{Owner: fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "holder"))}
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				j.Acquired(id, holder, 0, now)
			case 1:
				j.Ended(Released, id, holder, Acquisition{}, now, now)
			case 2:
				began := now - rapid.Int64Range(0, second).Draw(t, "late")
				j.WaitBegan(id, began, now)
				waits = append(waits, wait{id, began})
			case 3:
				if len(waits) > 0 {
					i := rapid.IntRange(0, len(waits)-1).Draw(t, "which")
					w := waits[i]
					got := rapid.Bool().Draw(t, "got")
					j.WaitEnded(w.id, holder, got, w.began, now)
					sums[w.id] += time.Duration(now - w.began)
					waits = slices.Delete(waits, i, i+1)
				}
			case 4:
				if j.WantsHolder(id, now) {
					j.SetHolder(id, holder, now)
				}
			case 5:
				last := now - rapid.Int64Range(0, 10*second).Draw(t, "last")
				j.Tried(id, last-second, last, now)
				sums[id] += time.Duration(now - last)
			}
		}
		for _, w := range waits {
			sums[w.id] += time.Duration(now - w.began)
		}
		for _, c := range j.Costs(Window, now, all) {
			blamed := time.Duration(0)
			for _, b := range c.Blame {
				blamed += b.Wait
			}
			if blamed != sums[c.Lock] || c.Wait != blamed {
				t.Fatalf("%v: blamed %v, waited %v, counted %v", c.Lock, blamed,
					sums[c.Lock], c.Wait)
			}
			delete(sums, c.Lock)
		}
		for id, sum := range sums {
			if sum != 0 {
				t.Errorf("%v is forgotten, with %v", id, sum)
			}
		}
	})
}

// The blame of each holder, and the cost of a lock within five minutes and an hour.
func TestCosts(t *testing.T) {
	j, id := New(1<<20), names.Lock{DB: 3, Key: "job"}
	at := func(minutes float64) int64 { return 1000*minuteLength + int64(minutes*60)*second }
	anna, bert := Holder{Token: 1, Owner: "anna", Client: "x:1"}, Holder{Token: 2, Client: "x:2"}
	j.Acquired(id, anna, 0, at(0))
	j.WaitBegan(id, at(10), at(10))
	j.WaitBegan(id, at(11), at(11))
	j.Refused(id, at(12))
	j.Ended(Released, id, anna, Acquisition{}, at(0), at(20))
	j.WaitEnded(id, bert, true, at(10), at(20))
	j.Acquired(id, bert, 10*time.Minute, at(20))
	find := func(within time.Duration, now int64) Cost {
		t.Helper()
		list := j.Costs(within, now, func(id *names.Lock) bool { return id.DB == 3 })
		if len(list) != 1 {
			t.Fatalf("%d locks", len(list))
		}
		return list[0]
	}
	c := find(Window, at(30))
	want := Numbers{Acquired: 2, Refused: 1, Waits: 2, Wait: 29 * time.Minute,
		LongestWait: 10 * time.Minute, Hold: 30 * time.Minute, LongestHold: 20 * time.Minute}
	if c.Numbers != want {
		t.Errorf("got  %+v\nwant %+v", c.Numbers, want)
	}
	blame := []Blame{{"anna", 19 * time.Minute}, {"x:2", 10 * time.Minute}}
	if !slices.Equal(c.Blame, blame) {
		t.Errorf("got %v, want %v", c.Blame, blame)
	}
	c = find(5*time.Minute, at(30)-1)
	if c.Wait.Round(time.Minute) > 5*time.Minute || c.Wait < 4*time.Minute || c.Acquired != 0 ||
		c.Waits != 1 { // which began before
		t.Errorf("of the last five minutes: %+v", c)
	}
	if c = find(Window, at(120)); c.Wait > Window || c.Wait < Window-2*time.Minute || c.Waits != 1 {
		t.Errorf("after two hours: %+v", c)
	}
}

func TestEvents(t *testing.T) {
	j := New(1 << 20)
	a, b := names.Lock{DB: 0, Key: "a"}, names.Lock{DB: 0, Key: "b"}
	for i := range int64(20) {
		j.Acquired(a, Holder{Token: i}, time.Duration(i), i*second)
		j.Ended(Expired, b, Holder{Token: i, Owner: "o", Client: "c"}, Acquisition{}, i*second,
			i*second+5)
	}
	list, more := j.Events(0, 5, func(*Event) bool { return true })
	if len(list) != 5 || !more || list[0].Kind != Expired || list[0].Token != 19 ||
		list[0].Hold != 5 || list[1].Kind != Acquired || list[1].Wait != 19 || list[4].Token != 17 {
		t.Errorf("%+v, more %v", list, more)
	}
	list, more = j.Events(10*second, 100, func(e *Event) bool { return e.Key == "a" })
	if len(list) != 10 || more || list[0].Token != 19 || list[9].Token != 10 {
		t.Errorf("%+v, more %v", list, more)
	}
}

// The end of a lock is found in the oldest record, too.
func TestEndInTheOldestRecord(t *testing.T) {
	j := New(1 << 20)
	first := Holder{1, "anna", "client", ""}
	id := names.Lock{DB: 0, Key: "a"}
	where := j.Acquired(id, first, 0, 1)
	for i, others := int64(0), int64(1); others <= 2; i++ {
		if other := (names.Lock{DB: 0, Key: fmt.Sprint(i)}); j.hash(other)%shards == j.hash(id)%shards {
			j.Acquired(other, Holder{1 + others, "ben", "client", ""}, 0, 1+others)
			others++
		}
	}
	j.Ended(Released, id, first, where, 1, 4)
	list, more := j.Events(0, 1, func(*Event) bool { return true })
	if len(list) != 1 || list[0].Kind != Released || !more {
		t.Errorf("%+v, more %v", list, more)
	}
}

// Whatever happens to locks, long after they were acquired or soon, the newest events are found,
// each as it was recorded.
func TestEventsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type held struct {
			id    names.Lock
			who   Holder
			where Acquisition // or none
			since int64
		}
		j, now := New(64<<20), int64(1000)
		var ids []names.Lock // of one shard
		for i := 0; len(ids) < 400; i++ {
			if id := (names.Lock{DB: i % 2, Key: fmt.Sprint(i)}); j.hash(id)%shards == 0 {
				ids = append(ids, id)
			}
		}
		var locks []held
		var want []Event
		for i := range 700 {
			now++
			id := ids[i%len(ids)]
			if k := rand.IntN(600); k < len(locks) {
				h := locks[k]
				locks = slices.Delete(locks, k, k+1)
				kind := []Kind{Released, Forced}[now%2]
				j.Ended(kind, h.id, h.who, h.where, h.since, now)
				want = append(want, Event{now, kind, h.id, h.who, 0, time.Duration(now - h.since)})
				continue
			}
			who := Holder{int64(i), fmt.Sprint(i), "client", ""}
			where := j.Acquired(id, who, time.Duration(i), now)
			if i%3 == 0 {
				where = Acquisition{}
			}
			want = append(want, Event{now, Acquired, id, who, time.Duration(i), 0})
			locks = append(locks, held{id, who, where, now})
		}
		slices.Reverse(want)
		limit := rapid.IntRange(1, 2500).Draw(t, "limit")
		got, more := j.Events(0, limit, func(*Event) bool { return true })
		if n := min(limit, len(want)); more != (len(want) > limit) || !slices.Equal(got, want[:n]) {
			t.Fatalf("%d events, want %d; more %v", len(got), n, more)
		}
	})
}

// However many locks there are, and however long their names, the memory is bounded.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 4 << 20
	j := New(limit)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	now := 5 * minuteLength
	waited := names.Lock{DB: 0, Key: "waited for"}
	j.WaitBegan(waited, now, now)
	j.WaitEnded(waited, Holder{}, false, now, now+second)
	for i := range 200_000 {
		now += second / 100
		id := names.Lock{DB: 0, Key: fmt.Sprintf("lock-%d", i)}
		holder := Holder{Token: int64(i), Owner: fmt.Sprint("owner-", i), Client: "127.0.0.1:1"}
		if i%1000 == 0 {
			id.Key += string(make([]byte, 1<<16))
			holder.Owner += string(make([]byte, 1<<16))
		}
		where := j.Acquired(id, holder, 0, now)
		if i%3 == 0 {
			j.WaitBegan(id, now, now)
			j.WaitEnded(id, holder, false, now, now)
		}
		j.Ended(Released, id, holder, where, now, now)
	}
	if used := int64(heap()) - int64(before); used > limit*3/2 {
		t.Errorf("%d bytes are used, the limit is %d", used, limit)
	}
	list := j.Costs(Window, now, all)
	if len(list) < 1000 {
		t.Errorf("%d locks are remembered", len(list))
	}
	runtime.KeepAlive(j)
}

func TestRemembersNothing(t *testing.T) {
	j := New(0)
	j.Acquired(names.Lock{}, Holder{}, 0, 1)
	j.Refused(names.Lock{}, 1)
	j.WaitBegan(names.Lock{}, 1, 1)
	j.WaitEnded(names.Lock{}, Holder{}, false, 1, 1)
	j.Tried(names.Lock{}, 1, 1, 1)
	j.Ended(Released, names.Lock{}, Holder{}, Acquisition{}, 1, 1)
	j.SetHolder(names.Lock{}, Holder{}, 1)
	if _, more := j.Events(0, 1, nil); more || j.WantsHolder(names.Lock{}, 1) ||
		j.Costs(Window, 1, nil) != nil {
		t.Error("it remembers something")
	}
}

// The end of a lock that was forgotten meanwhile is not taken for that of another in its place.
func TestEndOfAForgottenLock(t *testing.T) {
	j, id, who := New(64<<10), names.Lock{DB: 0, Key: "job"}, Holder{Owner: "anna"}
	now := minuteLength
	where := j.Acquired(id, who, 0, now)
	for i := range 10_000 {
		j.Acquired(names.Lock{DB: 0, Key: fmt.Sprint(i)}, who, 0, now)
	}
	cost := func() []Cost {
		return j.Costs(Window, now+second, func(of *names.Lock) bool { return *of == id })
	}
	if list := cost(); list != nil {
		t.Fatalf("it is remembered: %+v", list)
	}
	j.Ended(Released, id, who, where, now, now+second)
	if list := cost(); len(list) != 1 || list[0].Hold != time.Second {
		t.Errorf("%+v", list)
	}
	held := func(of *names.Lock) bool { return *of != id }
	for _, c := range j.Costs(Window, now, held) {
		if c.Hold != 0 {
			t.Errorf("another has ended: %+v", c)
		}
	}
}

// An event of a known lock allocates nothing.
func TestAllocatesNothing(t *testing.T) {
	j, id, who := New(16<<20), names.Lock{DB: 0, Key: "job"}, Holder{Token: 1, Client: "127.0.0.1:1"}
	now := minuteLength
	pair := func() {
		where := j.Acquired(id, who, 0, now)
		j.Ended(Released, id, who, where, now, now+1000)
		now += 1000
	}
	for range 100_000 {
		pair()
	}
	if n := testing.AllocsPerRun(10_000, pair); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPair(b *testing.B) {
	j, who := New(16<<20), Holder{Token: 1, Client: "127.0.0.1:1"}
	var ids [1000]names.Lock
	for i := range ids {
		ids[i].Key = fmt.Sprint("lock-", i)
	}
	b.ReportAllocs()
	for i := range b.N {
		now, id := int64(i)*10_000, ids[i%len(ids)]
		where := j.Acquired(id, who, 0, now)
		j.Ended(Released, id, who, where, now, now+1000)
	}
}

// However many holders the locks of one shape have had, merging their costs is fast.
func TestMerge(t *testing.T) {
	var list []Cost
	for i := range 20000 {
		id := names.Lock{DB: 0, Key: []string{"a", "b"}[i%2]}
		list = append(list, Cost{id, Numbers{Acquired: 1, Wait: 2},
			[]Blame{{"anna", 1}, {fmt.Sprint(i), 1}}})
	}
	merged := Merge(list)
	if len(merged) != 2 || merged[0].Key != "a" || merged[0].Acquired != 10000 ||
		merged[0].Wait != 20000 || merged[0].Blame[0] != (Blame{"anna", 10000}) ||
		len(merged[0].Blame) != 10001 {
		t.Errorf("%d, %+v", len(merged), merged[0].Numbers)
	}
}
