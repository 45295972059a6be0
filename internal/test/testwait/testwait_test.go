package testwait_test

import (
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/testwait"
)

// fatal is a test that notes that it has ended.
type fatal struct {
	testing.TB
	ended bool
}

func (*fatal) Helper()                 {}
func (f *fatal) Fatalf(string, ...any) { f.ended = true; panic(f) }

func endsTest(f *fatal, wait func()) bool {
	defer func() { recover() }()
	wait()
	return f.ended
}

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := &fatal{TB: t}
		endsTest(f, func() { testwait.Until(f, "never", func() bool { return false }) })
		if took := time.Since(began); !f.ended || took < testwait.Patience {
			t.Errorf("Until gave up after %v: %v", took, f.ended)
		}
		began, f = time.Now(), &fatal{TB: t}
		endsTest(f, func() { testwait.For(f, "never", make(chan int)) })
		if took := time.Since(began); !f.ended || took != testwait.Patience {
			t.Errorf("For gave up after %v: %v", took, f.ended)
		}
		looks := 0
		testwait.Until(t, "at the tenth look", func() bool { looks++; return looks == 10 })
		full := make(chan int, 1)
		full <- 7
		if got := testwait.For(t, "a number", full); got != 7 || looks != 10 {
			t.Errorf("For returned %d, Until looked %d times", got, looks)
		}
	})
}

// A goroutine is blocked once it waits, not while it is about to.
func TestBlocked(t *testing.T) {
	held, released := make(chan int), make(chan int)
	go func() { // ends below
		defer close(released)
		waitsFor(held)
	}()
	testwait.Blocked(t, "testwait_test.waitsFor")
	close(held)
	testwait.For(t, "its end", released)
}

//go:noinline
func waitsFor(c chan int) { <-c }
