package passthrough

import (
	"testing"
	"time"
)

// The distance is that of the farthest node, as long as that answers now and then, and not the time
// for which Redis has answered nobody.
func TestDistance(t *testing.T) {
	var d distance
	is := func(what string, least, most time.Duration) {
		if got := d.get(); got < least || got > most {
			t.Errorf("%s: %v, want %v to %v", what, got, least, most)
		}
	}
	is("before any answer", 0, 0)
	d.took(200 * time.Millisecond)
	d.took(time.Millisecond)
	is("near and far nodes", 150*time.Millisecond, 200*time.Millisecond)
	d.took(time.Minute)
	is("a silent Redis", 150*time.Millisecond, 200*time.Millisecond)
	for range 50 {
		d.took(time.Millisecond)
	}
	is("a Redis that is near again", time.Millisecond, 2*time.Millisecond)
}
