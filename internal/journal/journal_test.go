package journal

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func all(*Lock) bool { return true }

const second = int64(time.Second)

// Whatever happens in whatever order, the sum of what is blamed on the holders of a lock is the sum
// of the waits for it, those that go on among them.
func TestBlameIsTheSumOfWaitsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := New(1 << 20)
		type wait struct {
			id    Lock
			began int64
		}
		var waits []wait
		sums := map[Lock]time.Duration{}
		now := 100 * minuteLength
		until := now + 55*minuteLength
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = min(until, now+rapid.Int64Range(0, 40*second).Draw(t, "pause"))
			id := Lock{0, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")}
			holder := Holder{Owner: fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "holder"))}
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				j.Acquired(id, holder, 0, now)
			case 1:
				j.Ended(Released, id, holder, now, now)
			case 2:
				began := now - rapid.Int64Range(0, second).Draw(t, "late")
				j.WaitBegan(id, began, now)
				waits = append(waits, wait{id, began})
			case 3:
				if len(waits) > 0 {
					i := rapid.IntRange(0, len(waits)-1).Draw(t, "which")
					w := waits[i]
					j.WaitEnded(w.id, w.began, now)
					sums[w.id] += time.Duration(now - w.began)
					waits = slices.Delete(waits, i, i+1)
				}
			case 4:
				if j.WantsHolder(id, now) {
					j.SetHolder(id, holder, now)
				}
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

// What is blamed on each holder, and what a lock costs within five minutes and an hour.
func TestCosts(t *testing.T) {
	j, id := New(1<<20), Lock{3, "job"}
	at := func(minutes float64) int64 { return 1000*minuteLength + int64(minutes*60)*second }
	anna, bert := Holder{Token: 1, Owner: "anna", Client: "x:1"}, Holder{Token: 2, Client: "x:2"}
	j.Acquired(id, anna, 0, at(0))
	j.WaitBegan(id, at(10), at(10))
	j.WaitBegan(id, at(11), at(11))
	j.Refused(id, at(12))
	j.Ended(Released, id, anna, at(0), at(20))
	j.WaitEnded(id, at(10), at(20))
	j.Acquired(id, bert, 10*time.Minute, at(20))
	find := func(within time.Duration, now int64) Cost {
		t.Helper()
		list := j.Costs(within, now, func(id *Lock) bool { return id.DB == 3 })
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
	if c.Wait.Round(time.Minute) > 5*time.Minute || c.Wait < 4*time.Minute || c.Acquired != 0 {
		t.Errorf("of the last five minutes: %+v", c)
	}
	if c = find(Window, at(120)); c.Wait > Window || c.Wait < Window-2*time.Minute {
		t.Errorf("after two hours: %+v", c)
	}
}

func TestEvents(t *testing.T) {
	j := New(1 << 20)
	a, b := Lock{0, "a"}, Lock{0, "b"}
	for i := range int64(20) {
		j.Acquired(a, Holder{Token: i}, time.Duration(i), i*second)
		j.Ended(Expired, b, Holder{Token: i, Owner: "o", Client: "c"}, i*second, i*second+5)
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
	waited := Lock{0, "waited for"}
	j.WaitBegan(waited, now, now)
	j.WaitEnded(waited, now, now+second)
	for i := range 200_000 {
		now += second / 100
		id := Lock{0, fmt.Sprintf("lock-%d", i)}
		holder := Holder{Token: int64(i), Owner: fmt.Sprint("owner-", i), Client: "127.0.0.1:1"}
		if i%1000 == 0 {
			id.Key += string(make([]byte, 1<<16))
			holder.Owner += string(make([]byte, 1<<16))
		}
		j.Acquired(id, holder, 0, now)
		if i%3 == 0 {
			j.WaitBegan(id, now, now)
			j.WaitEnded(id, now, now)
		}
		j.Ended(Released, id, holder, now, now)
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
	j.Acquired(Lock{}, Holder{}, 0, 1)
	j.Refused(Lock{}, 1)
	j.WaitBegan(Lock{}, 1, 1)
	j.WaitEnded(Lock{}, 1, 1)
	j.Ended(Released, Lock{}, Holder{}, 1, 1)
	j.SetHolder(Lock{}, Holder{}, 1)
	if _, more := j.Events(0, 1, nil); more || j.WantsHolder(Lock{}, 1) ||
		j.Costs(Window, 1, nil) != nil {
		t.Error("it remembers something")
	}
}

// A lock that is known costs no memory each time.
func TestAllocatesNothing(t *testing.T) {
	j, id, who := New(16<<20), Lock{0, "job"}, Holder{Token: 1, Client: "127.0.0.1:1"}
	now := minuteLength
	pair := func() {
		j.Acquired(id, who, 0, now)
		j.Ended(Released, id, who, now, now+1000)
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
	var ids [1000]Lock
	for i := range ids {
		ids[i].Key = fmt.Sprint("lock-", i)
	}
	b.ReportAllocs()
	for i := range b.N {
		now, id := int64(i)*10_000, ids[i%len(ids)]
		j.Acquired(id, who, 0, now)
		j.Ended(Released, id, who, now, now+1000)
	}
}
