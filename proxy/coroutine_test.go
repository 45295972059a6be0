package proxy

import (
	"runtime"
	"testing"
	"time"
)

// Work runs in turns with its starter, a coroutine runs one after the other, and no more are kept than is allowed, none once they are closed.
func TestCoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	var cs coroutines
	var said string
	c := cs.take()
	for _, name := range []string{"a", "b"} {
		c.start(func() {
			said += name + "1 "
			c.wait()
			said += name + "2 "
		})
		said += "and "
		if c.atRest {
			t.Error("it is at rest though its work waits")
		}
		c.resume()
		if !c.atRest {
			t.Error("it isn't at rest though its work has ended")
		}
	}
	if want := "a1 and a2 b1 and b2 "; said != want {
		t.Errorf("%q, want %q", said, want)
	}
	cs.put(c)
	if again := cs.take(); again != c {
		t.Error("another is made though one is spare")
	}
	list := []*coroutine{c}
	for range maxSpareCoroutines + 10 {
		n := cs.take()
		n.start(func() {})
		list = append(list, n)
	}
	last := list[len(list)-1]
	list = list[:len(list)-1]
	for _, c := range list {
		cs.put(c)
	}
	if len(cs.spare) != maxSpareCoroutines {
		t.Errorf("%d are kept", len(cs.spare))
	}
	cs.close()
	cs.put(last)
	for over := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(over) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		}
	}
}

func TestCoroutinesAllocateNothing(t *testing.T) {
	var cs coroutines
	defer cs.close()
	work := func() {}
	if n := testing.AllocsPerRun(100, func() {
		c := cs.take()
		c.start(work)
		cs.put(c)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
