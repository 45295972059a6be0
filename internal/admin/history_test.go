package admin

import (
	"slices"
	"testing"
	"time"

	"lockproxy/proxy"
)

// When the machine's clock is set back, the points go on from there, and a page that has later ones
// gets all again.
func TestHistoryWhenTheClockIsSetBack(t *testing.T) {
	var h history
	var waits recentWaits
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, second := range []int{0, 1, 2, 3, 4, 2, 3} {
		h.add(noon.Add(time.Duration(second)*time.Second), proxy.Stats{}, &waits)
	}
	seconds := func(since int) (list []int64) {
		for _, p := range h.since(noon.UnixMilli() + int64(since)*1000) {
			list = append(list, (p.At-noon.UnixMilli())/1000)
		}
		return list
	}
	for since, want := range map[int][]int64{0: {1, 2, 3}, 2: {3}, 3: nil, 4: {1, 2, 3}} {
		if got := seconds(since); !slices.Equal(got, want) {
			t.Errorf("after second %d: %v, want %v", since, got, want)
		}
	}
}
