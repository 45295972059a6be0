package survey

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/lockinfo"
)

// fake is an upstream in one database, whose keys are scanned in order.
type fake struct {
	keys      []string
	held      map[string]lockinfo.Info
	known     []lockinfo.Info
	scanned   int
	inspected int
	refuse    error
}

func (f *fake) Snapshot() []lockinfo.Info { return f.known }

func (f *fake) Scan(_ context.Context, db int, cursor uint64, count int) (uint64, []string, error) {
	if f.refuse != nil {
		return 0, nil, f.refuse
	}
	if db != 0 {
		return 0, nil, nil
	}
	end := min(int(cursor)+count, len(f.keys))
	f.scanned += end - int(cursor)
	if end == len(f.keys) {
		return 0, f.keys[cursor:end], nil
	}
	return uint64(end), f.keys[cursor:end], nil
}

func (f *fake) Inspect(
	_ context.Context, db int, keys []string,
) (list []lockinfo.Info, err error) {
	if f.refuse != nil {
		return nil, f.refuse
	}
	f.inspected += len(keys)
	for _, key := range keys {
		if h, ok := f.held[key]; ok && h.DB == db {
			list = append(list, h)
		}
	}
	return list, nil
}

func newFake(locks int) *fake {
	f := &fake{held: map[string]lockinfo.Info{}}
	for i := range locks {
		f.add(fmt.Sprintf("k%05d", i),
			lockinfo.Info{Token: int64(i + 1), Remaining: time.Minute})
	}
	return f
}

func (f *fake) add(key string, h lockinfo.Info) {
	h.Key = key
	f.keys = append(f.keys, key)
	f.held[key] = h
}

var ctx = context.Background()

// However many keys there are, a step costs no more than its budget, and in the end all locks are
// found.
func TestStepsAreBounded(t *testing.T) {
	f := newFake(2400)
	s := New(f, 0, Budget{Scan: 1000, Inspect: 200})
	for step := 1; step <= 40; step++ {
		f.scanned, f.inspected = 0, 0
		s.Step(ctx)
		if f.scanned > 1000 || f.inspected > 200 {
			t.Fatalf("step %d scanned %d keys and looked at %d locks", step, f.scanned, f.inspected)
		}
		if v := s.View(Query{}, time.Now()); v.Total > step*200 {
			t.Errorf("after %d steps: %d locks", step, v.Total)
		}
	}
	if v := s.View(Query{}, time.Now()); v.Total != 2400 || !v.Complete {
		t.Fatalf("%d locks found, complete %v", v.Total, v.Complete)
	}
	clear(f.held) // released: their records are there still, and are found again and again
	f.add("z", lockinfo.Info{Token: 1, Remaining: time.Minute})
	for range 40 {
		f.scanned, f.inspected = 0, 0
		s.Step(ctx)
		if f.scanned > 1000 || f.inspected > 200 {
			t.Fatalf("scanned %d keys and looked at %d locks", f.scanned, f.inspected)
		}
	}
	if v := s.View(Query{}, time.Now()); v.Total != 1 || v.Rows[0].Key != "z" {
		t.Errorf("%d locks are shown, 1 is held", v.Total)
	}
}

func TestMoreThanCanBeFollowed(t *testing.T) {
	f := newFake(maxLocks + 500)
	s := New(f, 0, Budget{Scan: 1 << 20, Inspect: 1 << 20})
	s.Step(ctx)
	if v := s.View(Query{Limit: 10}, time.Now()); v.Total != maxLocks || !v.Truncated ||
		len(v.Rows) != 10 || v.Matching != maxLocks {
		t.Errorf("%d of %d, full %v, %d rows", v.Matching, v.Total, v.Truncated, len(v.Rows))
	}
}

func TestKnownWithoutScan(t *testing.T) {
	f := newFake(0)
	f.held["mine"] = lockinfo.Info{Lock: names.Lock{DB: 5, Key: "mine"}, Token: 9,
		Remaining: time.Minute, Waiters: 2}
	f.known = []lockinfo.Info{{Lock: names.Lock{DB: 5, Key: "mine"}, Token: 9,
		Owner: "guess"}, {Lock: names.Lock{Key: "gone"}, Token: 1, Remaining: time.Hour}}
	s := New(f, 0, DefaultBudget)
	s.Step(ctx)
	v := s.View(Query{}, time.Now())
	if len(v.Rows) != 1 || v.Rows[0].Key != "mine" || v.Rows[0].DB != 5 || v.Rows[0].Owner != "" {
		t.Errorf("%+v", v.Rows)
	}

	f.refuse = errors.New("NOAUTH")
	s = New(f, 0, DefaultBudget)
	s.Step(ctx)
	v = s.View(Query{}, time.Now())
	if v.Err == nil || len(v.Rows) != 1 || v.Rows[0].Key != "gone" {
		// the other's time is not known
		t.Errorf("refused: %+v", v)
	}
}

// Between inspections times go on, and a lock whose time has passed isn't shown.
func TestTimeGoesOn(t *testing.T) {
	f := newFake(0)
	f.add("a", lockinfo.Info{Token: 1, Age: 10 * time.Second, Remaining: 20 * time.Second})
	f.add("s",
		lockinfo.Info{Token: 2, Age: time.Hour, Remaining: 9 * time.Second, Session: true})
	s := New(f, 0, DefaultBudget)
	s.Step(ctx)
	f.held["s"] = lockinfo.Info{Lock: names.Lock{Key: "s"}, Token: 2, Age: time.Hour,
		Remaining: 6 * time.Second, Session: true}
	s.Step(ctx)
	near := func(got, want time.Duration) bool { return (got - want).Abs() < time.Second/2 }
	v := s.View(Query{}, time.Now().Add(2*time.Second))
	if a := v.Rows[0]; !near(a.Age, 12*time.Second) || !near(a.Remaining, 18*time.Second) ||
		!near(a.Lifetime, 30*time.Second) {
		t.Errorf("%+v", a)
	}
	if r := v.Rows[1]; !near(r.Remaining, 4*time.Second) || !near(r.Lifetime, 9*time.Second) {
		t.Errorf("%+v", r)
	}
	if v := s.View(Query{}, time.Now().Add(15*time.Second)); v.Total != 1 {
		t.Errorf("%d locks are left", v.Total)
	}
}

func TestQuery(t *testing.T) {
	f := newFake(0)
	f.add("b",
		lockinfo.Info{Token: 1, Owner: "Zoe", Client: "10.0.0.2:1", Age: 3 * time.Second,
			Remaining: time.Minute, Waiters: 1})
	f.add("a",
		lockinfo.Info{Token: 2, Owner: "adam", Client: "10.0.0.3:1", Age: 2 * time.Second,
			Remaining: time.Hour, Waiters: 9})
	f.add("c",
		lockinfo.Info{Token: 3, Client: "10.0.0.1:1", Age: time.Second, Remaining: time.Second})
	s := New(f, 0, DefaultBudget)
	s.Step(ctx)
	for _, test := range []struct {
		q    Query
		want string
	}{
		{Query{Sort: ByKey}, "abc"}, {Query{Sort: ByKey, Descending: true}, "cba"},
		{Query{Sort: ByOwner}, "cba"}, {Query{Sort: ByClient}, "cba"}, {Query{Sort: ByAge}, "cab"},
		{Query{Sort: ByRemaining}, "cba"}, {Query{Sort: ByWaiters, Descending: true}, "abc"},
		{Query{Filter: "ZO"}, "b"}, {Query{Filter: "0.0.1"}, "c"}, {Query{Filter: "nothing"}, ""},
		{Query{Sort: ByKey, Limit: 2}, "ab"},
	} {
		got := ""
		for _, r := range s.View(test.q, time.Now()).Rows {
			got += r.Key
		}
		if got != test.want {
			t.Errorf("%+v: %s, want %s", test.q, got, test.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"plain key:1": "plain key:1", "grün": "grün", "<b>&": "<b>&",
		"a\nb\r\t\x00\x7f": `a\nb\r\t\x00\x7f`, "\xff\xfe": `\xff\xfe`, `a\n`: `a\\n`,
		"\u202eevil": `\u202eevil`, "\ufffd": "\ufffd",
	} {
		if got := Printable(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
		if strings.ContainsAny(Printable(name), "\n\r\x00\x1b") {
			t.Errorf("%q can do harm", name)
		}
	}
}

// A lock that clients wait for stays in the list while it goes from one holder to the next.
func TestBetweenTwoHolders(t *testing.T) {
	f := newFake(2)
	id := names.Lock{Key: "hot"}
	f.known = []lockinfo.Info{{Lock: id, Waiters: 3, OldestWait: time.Second, Owner: "old",
		Token: 7, Remaining: time.Minute}}
	s := New(f, 0, DefaultBudget)
	s.Step(context.Background())
	v := s.View(Query{Sort: ByWaiters, Descending: true}, time.Now())
	if r := v.Rows[0]; v.Total != 3 || r.Lock != id || !r.Free || r.Waiters != 3 ||
		r.Owner != "" || r.Remaining != 0 {
		t.Errorf("%+v", v)
	}
	f.known = nil
	s.Step(context.Background())
	if v := s.View(Query{}, time.Now()); v.Total != 2 {
		t.Errorf("nobody waits any more: %+v", v)
	}
}

// A lock that no scan finds is found by its name, if it is held.
func TestFind(t *testing.T) {
	f := newFake(0)
	f.held["theirs"] = lockinfo.Info{Lock: names.Lock{Key: "theirs"}, Kind: "timestamp",
		Age: lockinfo.UnknownAge, Remaining: time.Minute}
	s := New(f, 0, DefaultBudget)
	s.Step(context.Background())
	for _, name := range []string{"", "nothing", "theirs", "theirs"} {
		s.Find(context.Background(), name)
	}
	v := s.View(Query{Filter: "THEIRS"}, time.Now().Add(time.Second))
	if len(v.Rows) != 1 || v.Total != 1 || v.Rows[0].Age != lockinfo.UnknownAge || f.inspected != 2 {
		t.Errorf("%+v after %d looks", v, f.inspected)
	}
}

// everywhere is an upstream where every lock that is asked about is held, in each database.
type everywhere struct{ *fake }

func (everywhere) Inspect(
	_ context.Context, db int, keys []string,
) (list []lockinfo.Info, err error) {
	for _, key := range keys {
		list = append(list, lockinfo.Info{Lock: names.Lock{DB: db, Key: key}, Token: 1,
			Remaining: time.Minute})
	}
	return list, nil
}

// Of locks found by one name only those are followed that there is room for.
func TestFindWhereOneMoreFits(t *testing.T) {
	f := newFake(maxLocks - 2)
	f.known = []lockinfo.Info{{Lock: names.Lock{DB: 5, Key: "known"}}}
	s := New(everywhere{f}, 0, Budget{Scan: 1 << 20, Inspect: 1 << 20})
	s.Step(ctx)
	s.Find(ctx, "found")
	if v := s.View(Query{}, time.Now()); v.Total != maxLocks || !v.Truncated {
		t.Errorf("%d locks, full %v", v.Total, v.Truncated)
	}
}

// closed is an upstream where locks in one database cannot be inspected.
type closed struct {
	*fake
	db int
}

func (c closed) Inspect(
	ctx context.Context, db int, keys []string,
) (list []lockinfo.Info, err error) {
	if db == c.db {
		return nil, errors.New("NOPERM")
	}
	return c.fake.Inspect(ctx, db, keys)
}

// Locks that cannot be inspected leave room for others, which are inspected again and again.
func TestMoreThanCanBeInspected(t *testing.T) {
	f := newFake(0)
	for i := range maxLocks + 1 {
		f.known = append(f.known,
			lockinfo.Info{Lock: names.Lock{DB: 3, Key: fmt.Sprint(i)}})
	}
	s := New(closed{f, 3}, 0, DefaultBudget)
	s.Step(ctx)
	f.known = nil
	f.add("here", lockinfo.Info{Token: 1, Remaining: time.Minute})
	after := func(steps int) View {
		for range steps {
			s.Step(ctx)
		}
		return s.View(Query{}, time.Now())
	}
	if v := after(20); v.Total != 1 || v.Truncated { // 500 new names a step
		t.Errorf("%d locks, full %v", v.Total, v.Truncated)
	}
	clear(f.held)
	if v := after(20); v.Total != 0 {
		t.Errorf("%d locks are shown, none is held", v.Total)
	}
}
