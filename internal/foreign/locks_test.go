package foreign

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
)

// saw tells locks of a request at a time, in seconds.
func saw(l *Locks, key, by string, a Action, o Outcome, ttl time.Duration, at float64) bool {
	now := time.Unix(1_700_000_000, int64(at*1e9))
	r := Request{Action: a, TTL: ttl, Proof: proofOf([]byte(by))}
	return l.Saw(names.Lock{Key: key}, Client{Addr: by}, r, o, now)
}

// describe is the locks as text.
func describe(l *Locks, at float64) string {
	now := time.Unix(1_700_000_000, int64(at*1e9))
	var text []string
	for _, lock := range l.List(100, now) {
		line := fmt.Sprintf("%s by %q, refused %d:", lock.Key, lock.Holder.Addr, lock.Refused)
		if lock.Holder.Addr != "" {
			line += fmt.Sprintf(" since %v, %v left", now.Sub(lock.Since), lock.Until.Sub(now))
		}
		for _, t := range lock.Trying {
			line += fmt.Sprintf(" %s %d times in %v", t.Addr, t.Times, t.Last.Sub(t.Since))
		}
		text = append(text, line)
	}
	return strings.Join(text, "; ")
}

func TestLocks(t *testing.T) {
	l := NewLocks(nil, &names.Filter{})
	steps := []struct {
		by    string
		a     Action
		o     Outcome
		ttl   time.Duration
		at    float64
		want  string
		freed bool
	}{
		{"a", Take, Yes, 30 * time.Second, 0, `k by "a", refused 0: since 0s, 30s left`, false},
		{"b", Take, No, 30 * time.Second, 1,
			`k by "a", refused 1: since 1s, 29s left b 1 times in 0s`, false},
		{"c", Take, No, 0, 2,
			`k by "a", refused 2: since 2s, 28s left b 1 times in 0s c 1 times in 0s`, false},
		{"b", Take, No, 30 * time.Second, 3,
			`k by "a", refused 3: since 3s, 27s left b 2 times in 2s c 1 times in 0s`, false},
		{"a", Extend, Yes, 60 * time.Second, 4,
			`k by "a", refused 3: since 4s, 1m0s left b 2 times in 2s c 1 times in 0s`, false},
		// A reentrant lock: it is its holder's since it was taken first.
		{"a", Take, Yes, 60 * time.Second, 4,
			`k by "a", refused 3: since 4s, 1m0s left b 2 times in 2s c 1 times in 0s`, false},
		{"b", Release, No, 0, 5,
			`k by "a", refused 3: since 5s, 59s left b 2 times in 2s c 1 times in 0s`, false},
		{"a", Release, Failed, 0, 5,
			`k by "a", refused 3: since 5s, 59s left b 2 times in 2s c 1 times in 0s`, false},
		{"a", Release, Queued, 0, 5,
			`k by "a", refused 3: since 5s, 59s left b 2 times in 2s c 1 times in 0s`, false},
		{"a", Release, Yes, 0, 6, `k by "", refused 0: b 2 times in 2s c 1 times in 0s`, true},
		{"b", Take, Yes, 2 * time.Second, 7,
			`k by "b", refused 0: since 0s, 2s left c 1 times in 0s`, false},
		// c has given up, and the TTL of b has ended.
		{"d", Touch, Yes, 0, 20, ``, false},
		// SETNX is a lock once it has a TTL.
		{"e", Candidate, Yes, 0, 21, ``, false},
		{"e", Extend, Yes, 5 * time.Second, 22, `k by "e", refused 0: since 1s, 5s left`, false},
		// By its value alone: an EVALSHA that has not been seen before.
		{"f", Touch, Yes, 0, 23, `k by "e", refused 0: since 2s, 4s left`, false},
		{"e", Touch, Yes, 9 * time.Second, 23, `k by "e", refused 0: since 2s, 9s left`, false},
		{"e", Touch, Yes, 0, 24, ``, true},
	}
	for i, s := range steps {
		if freed := saw(l, "k", s.by, s.a, s.o, s.ttl, s.at); freed != s.freed {
			t.Errorf("step %d: released: %v", i, freed)
		}
		if got := describe(l, s.at); got != s.want {
			t.Errorf("step %d:\n%s, want\n%s", i, got, s.want)
		}
	}
	want := Counts{Taken: 3, Released: 2, Expired: 1, Refused: 3}
	if got := l.Counts(time.Unix(1_700_000_030, 0)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if l.Any() {
		t.Error("something is known still")
	}
}

// Each lock that is taken ends once, and the times of a client's tries add up to its wait.
func TestJournal(t *testing.T) {
	j := journal.New(1 << 20)
	l := NewLocks(j, &names.Filter{})
	for _, s := range []struct {
		key, by string
		a       Action
		o       Outcome
		ttl     time.Duration
		at      float64
	}{
		{"k", "a", Take, Yes, 10 * time.Second, 0}, {"k", "b", Take, No, time.Second, 1},
		{"k", "b", Take, No, time.Second, 3}, {"k", "a", Extend, Yes, 5 * time.Second, 3},
		{"k", "a", Release, Yes, 0, 4}, {"k", "b", Take, Yes, 2 * time.Second, 5},
		{"k", "c", Take, No, time.Second, 6}, {"k", "d", Take, Yes, time.Second, 20},
		{"n", "e", Candidate, Yes, 0, 20}, {"n", "e", Extend, Yes, time.Second, 21},
	} {
		saw(l, s.key, s.by, s.a, s.o, s.ttl, s.at)
	}
	end := time.Unix(1_700_000_030, 0)
	l.Counts(end)
	var got []string
	events, _ := j.Events(0, 100, func(*journal.Event) bool { return true })
	for _, e := range events {
		got = append(got, fmt.Sprint(e.Key, " ", e.Client, " ", e.Kind, e.Wait, e.Hold))
	}
	all := func(*names.Lock) bool { return true }
	for _, c := range j.Costs(journal.Window, monotonic.Of(end), all) {
		got = append(got, fmt.Sprint(c.Key, c.Waits, c.Wait, c.LongestWait, c.Hold, c.LongestHold))
	}
	want := []string{
		"k a acquired 0s 0s", "k a released 0s 4s", "k b acquired 4s 0s", "k b expired 0s 2s",
		"k d acquired 0s 0s", "k d expired 0s 1s", "n e acquired 0s 0s", "n e expired 0s 2s",
		"k2 4s 4s 7s 4s", "n0 0s 0s 2s 2s",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A client whose attempts to take a lock fail counts as trying until a while after the last one.
func TestTryingIsCounted(t *testing.T) {
	l := NewLocks(nil, &names.Filter{})
	for _, try := range []struct {
		key, by string
		at      float64
	}{{"k", "b", 0}, {"k", "c", 2}, {"l", "b", 3}, {"k", "b", 8}} {
		saw(l, try.key, try.by, Take, No, time.Minute, try.at)
	}
	for _, want := range []Counts{
		{Refused: 4, Trying: 3, OldestTry: 8 * time.Second},
		{Refused: 4, Trying: 1, OldestTry: 15 * time.Second},
	} {
		if got := l.Counts(time.Unix(1_700_000_000, 0).Add(want.OldestTry)); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Memory is bounded in the locks, in the clients that try, and in the length of names.
func TestLocksAreBounded(t *testing.T) {
	l := NewLocks(nil, &names.Filter{})
	for i := range 3 * maxLocks {
		saw(l, fmt.Sprint("k", i), "a", Take, Yes, time.Hour, 0)
	}
	if n := len(l.locks); n > maxLocks || n < maxLocks/2 {
		t.Errorf("%d locks", n)
	}
	l = NewLocks(nil, &names.Filter{})
	for i := range 100 {
		saw(l, "k", fmt.Sprint(i), Take, No, 0, 0)
	}
	if lock, _ := l.Get(names.Lock{Key: "k"}, time.Unix(1_700_000_000, 0)); len(lock.Trying) != maxTries ||
		lock.Refused != 100 {
		t.Errorf("%d clients try, of %d that were refused", len(lock.Trying), lock.Refused)
	}
	saw(l, strings.Repeat("k", maxKey+1), "a", Take, Yes, time.Hour, 0)
	if len(l.locks) != 1 {
		t.Error("a long name is remembered")
	}
	// What SETNX sets and never becomes a lock goes by itself.
	l = NewLocks(nil, &names.Filter{})
	for i := range 3 * maxLocks {
		saw(l, fmt.Sprint("k", i), "a", Candidate, Yes, 0, float64(i)/10)
	}
	if n := len(l.locks); n > maxLocks/2 {
		t.Errorf("%d keys of SETNX are remembered", n)
	}
}

// A lock that is forgotten because there are too many is not counted as held for ever: the journal
// is told of each, and of no other.
func TestForgottenLocksAreTold(t *testing.T) {
	j := journal.New(64 << 20)
	l := NewLocks(j, &names.Filter{})
	for i := range maxLocks + 100 {
		saw(l, fmt.Sprint("k", i), "a", Take, Yes, time.Hour, 0)
	}
	held := map[string]bool{}
	later := monotonic.Of(time.Unix(1_700_000_010, 0))
	for _, c := range j.Costs(journal.Window, later, func(*names.Lock) bool { return true }) {
		held[c.Key] = c.Hold == 10*time.Second
	}
	for i := range maxLocks + 100 {
		key := fmt.Sprint("k", i)
		if _, known := l.Get(names.Lock{Key: key}, time.Time{}); known != held[key] {
			t.Errorf("%s: known %t, held as the journal has it %t", key, known, held[key])
		}
	}
}
