package proxy

import (
	"math"
	"testing"
)

func TestReserveLimit(t *testing.T) {
	for _, c := range []struct {
		files   uint64
		clients int
		want    int
	}{
		{1 << 19, 10000, 10000},
		{math.MaxUint64, 10000, 10000},
		{20000, 10000, 20000 - 10000 - otherFiles},
		{1024, 10000, 16},
		{0, 10000, 16},
		{1 << 20, 3, 16},
		{1 << 20, math.MaxInt32, 16},
	} {
		if got := reserveLimit(c.files, c.clients); got != c.want {
			t.Errorf("%d files, %d clients: got %d, want %d", c.files, c.clients, got, c.want)
		}
	}
	if openFiles() == 0 {
		t.Error("this process may have no files open")
	}
}
