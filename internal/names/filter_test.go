package names

import (
	"fmt"
	"testing"
)

// Keys that were added may be there, and most others are known not to be.
func TestFilter(t *testing.T) {
	f := &Filter{}
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
