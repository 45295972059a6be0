package freeport

import (
	"net"
	"strconv"
	"sync"
	"testing"
)

// Nobody is given what another holds, however many ask at once, and what a listener has is given to
// nobody.
func TestReserve(t *testing.T) {
	var (
		mu   sync.Mutex
		seen = map[int]bool{}
		wg   sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			for i := range 25 {
				var above []int
				if i%2 == 0 {
					above = []int{10000}
				}
				r, err := Reserve(above...)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(r.Release)
				mu.Lock()
				for _, port := range append([]int{0}, above...) {
					if seen[r.Port+port] {
						t.Errorf("port %d is given out twice", r.Port+port)
					}
					seen[r.Port+port] = true
				}
				mu.Unlock()
				ln, err := net.Listen("tcp", r.Addr())
				if err != nil {
					t.Errorf("a reserved port can't be listened on: %v", err)
					continue
				}
				t.Cleanup(func() { ln.Close() })
			}
		})
	}
	wg.Wait()
}

// A port is free for others after Release, and is not given out while something listens on it.
func TestRelease(t *testing.T) {
	r, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Reservation{}).reserve(r.Port); err == nil {
		t.Error("a reserved port can be taken")
	}
	r.Release()
	r.Release()
	again := &Reservation{Port: r.Port}
	if err := again.reserve(r.Port); err != nil {
		t.Fatalf("a released port can't be taken: %v", err)
	}
	again.Release()
	ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(r.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := again.reserve(r.Port); err == nil {
		t.Error("a port on which something listens can be taken")
	}
	again.Release()
}

func TestReserveTooFar(t *testing.T) {
	if r, err := Reserve(last); err == nil {
		t.Errorf("port %d is given out", r.Port)
	}
}
