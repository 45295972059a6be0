package foreign

import (
	"fmt"
	"testing"

	"lockproxy/internal/names"
)

// The filter of Locks has their keys, whatever comes and goes.
func TestFilterOfLocks(t *testing.T) {
	l := NewLocks(nil, &names.Filter{})
	for i := range 2 * maxLocks {
		saw(l, fmt.Sprint("k", i), "a", Take, Yes, 1e12, 0)
		if i%3 == 0 {
			saw(l, fmt.Sprint("k", i), "a", Release, Yes, 0, 0)
		}
	}
	for id := range l.locks {
		if !l.keys.May([]byte(id.Key)) {
			t.Fatalf("%s is missing", id.Key)
		}
		l.keys.Add(id.Key, -1)
	}
	if *l.keys != (names.Filter{}) {
		t.Error("the filter has others")
	}
}
