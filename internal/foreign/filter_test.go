package foreign

import (
	"fmt"
	"testing"
)

// Keys that were added may be there, and most others are known not to be.
func TestFilter(t *testing.T) {
	f := NewFilter()
	for i := range 1000 {
		f.Add(fmt.Sprint("a", i), 1)
	}
	others := 0
	for i := range 1000 {
		if !f.May([]byte(fmt.Sprint("a", i))) {
			t.Errorf("a%d is missing", i)
		}
		if f.May([]byte(fmt.Sprint("b", i))) {
			others++
		}
	}
	if others > 20 { // about 4
		t.Errorf("%d of 1,000 other keys may be there", others)
	}
	for i := range 1000 {
		f.Add(fmt.Sprint("a", i), -1)
	}
	for i := range f.counts {
		if n := f.counts[i].Load(); n != 0 {
			t.Fatalf("a count is %d when all keys are gone", n)
		}
	}
}

// The filter of Locks has their keys, whatever comes and goes.
func TestFilterOfLocks(t *testing.T) {
	l := NewLocks(nil)
	for i := range 2 * maxLocks {
		saw(l, fmt.Sprint("k", i), "a", Take, Yes, 1e12, 0)
		if i%3 == 0 {
			saw(l, fmt.Sprint("k", i), "a", Release, Yes, 0, 0)
		}
	}
	sum := 0
	for i := range l.keys.counts {
		sum += int(l.keys.counts[i].Load())
	}
	if sum != 2*len(l.locks) {
		t.Errorf("%d locks, the filter has %d", len(l.locks), sum)
	}
	for id := range l.locks {
		if !l.MayKnow([]byte(id.Key)) {
			t.Fatalf("%s is missing", id.Key)
		}
	}
}
