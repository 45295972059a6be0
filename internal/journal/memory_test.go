//go:build !race

package journal

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"lockproxy/internal/names"
)

// A key that there is no room for leaves what is remembered of others.
func TestKeyWithoutRoom(t *testing.T) {
	j, anna := New(1<<20), Holder{Token: 1, Owner: "anna"}
	for i := range 100 {
		j.Acquired(names.Lock{DB: 0, Key: fmt.Sprint(i)}, anna, 0, minuteLength)
	}
	for i := range 200 { // at least one in each shard
		id := names.Lock{DB: 0, Key: fmt.Sprint(i) + strings.Repeat("x", 1<<16)}
		j.Ended(Released, id, anna, j.Acquired(id, anna, 0, minuteLength), 1, minuteLength)
	}
	if list := j.Costs(Window, 2*minuteLength, all); len(list) != 100 {
		t.Errorf("%d locks are remembered", len(list))
	}
	if list, _ := j.Events(0, 1000, func(*Event) bool { return true }); len(list) != 100 {
		t.Errorf("%d events are remembered", len(list))
	}
}

// The memory is bounded for locks that are used over and over, too, and all of it is counted.
func TestMemoryOfUsedLocksIsBounded(t *testing.T) {
	const limit = 1 << 20
	j := New(limit)
	for minute := range int64(120) {
		now := (1 + minute) * minuteLength
		for i := range 1000 {
			id := names.Lock{DB: 0, Key: fmt.Sprint(i)}
			j.Refused(id, now)
			if i%2 == 0 {
				continue
			}
			for k := range maxBlame {
				j.Acquired(id, Holder{Owner: fmt.Sprint("owner-", k)}, 0, now)
				j.Tried(id, now-second, now-second, now)
			}
		}
	}
	for i := range j.shards {
		s, size := &j.shards[i], 0
		for _, h := range s.locks {
			size += h.bytes()
		}
		if s.size != size || size > s.limit {
			t.Errorf("shard %d: %d bytes of locks, counted %d, limit %d", i, size, s.size, s.limit)
		}
	}
	if list := j.Costs(Window, 120*minuteLength, all); len(list) == 0 {
		t.Error("nothing is remembered")
	}
}

// What has been dropped of a lock's minutes is not kept in memory.
func TestDroppedMinutes(t *testing.T) {
	var h history
	for number := range int64(60) {
		h.minute(number*minuteLength).wait("anna", time.Second)
	}
	h.minute(200 * minuteLength)
	for i, m := range h.minutes[:cap(h.minutes)] {
		if m.blame != nil {
			t.Fatalf("minute %d keeps %v", i, m.blame)
		}
	}
}

// Of a long name only the beginning is kept, in whole characters.
func TestLongNames(t *testing.T) {
	j, id := New(1<<20), names.Lock{DB: 0, Key: "job"}
	now := minuteLength
	owner := "x" + strings.Repeat("é", 1<<20)
	j.Acquired(id, Holder{Token: 1, Owner: owner}, 0, now)
	j.Tried(id, now, now, now+second)
	names := []string{j.Costs(Window, now+second, all)[0].Blame[0].Holder}
	list, _ := j.Events(0, 1, func(*Event) bool { return true })
	names = append(names, list[0].Owner)
	s, hash := j.lock(id)
	names = append(names, s.locks[hash].holder)
	s.mu.Unlock()
	for _, name := range names {
		if len(name) > maxName || len(name) < maxName-utf8.UTFMax || !utf8.ValidString(name) ||
			!strings.HasPrefix(owner, name) {
			t.Errorf("%d bytes: %.200q", len(name), name)
		}
	}
}
