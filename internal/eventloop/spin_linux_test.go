package eventloop

import (
	"io"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
)

// looks drives a spin from its wake to its sleep: a look every step, and an arrival at each of those
// times. It returns when the loop sleeps.
func looks(s *spin, at, step time.Duration, arrivals ...time.Duration) time.Duration {
	for s.woken(at); ; at += step {
		s.looked(at)
		if len(arrivals) > 0 && at >= arrivals[0] {
			arrivals = arrivals[1:]
			s.handled(at)
		}
		if !s.goesOn(at) {
			return at
		}
	}
}

// every returns n times, the first at from.
func every(from, gap time.Duration, n int) (times []time.Duration) {
	for range n {
		times = append(times, from)
		from += gap
	}
	return times
}

func TestSpin(t *testing.T) {
	const us, start = time.Microsecond, time.Hour
	for _, test := range []struct {
		name     string
		step     time.Duration
		arrivals []time.Duration
		spins    time.Duration // until the loop sleeps
		rests    time.Duration // after that
	}{
		{"nothing more arrives", us, every(start, 0, 1), spinFor + us, restFactor * (spinFor + us)},
		{"requests follow each other", us, every(start, spinFor/2, 1000),
			spinFor/2*999 + spinFor + us, restFactor * (spinFor + us)},
		{"the last of a few", us, every(start, spinFor, 3), 3*spinFor + us, restFactor * (spinFor + us)},
		{"other programs run between two looks", 3 * time.Millisecond, every(start, 0, 2),
			3 * time.Millisecond, restFactor * 3 * time.Millisecond},
	} {
		var s spin
		slept := looks(&s, start, test.step, test.arrivals...)
		if got := slept - start; got != test.spins {
			t.Errorf("%s: spins for %v, not %v", test.name, got, test.spins)
		}
		for _, after := range []time.Duration{0, test.rests - us, test.rests} {
			if after < 0 {
				continue
			}
			again := s
			spins := looks(&again, slept+after, us) > slept+after
			if spins != (after >= test.rests) {
				t.Errorf("%s: %v after it slept it spins: %v; it rests for %v", test.name, after,
					spins, test.rests)
			}
		}
	}
}

// A loop sleeps soon after the last arrival.
func TestIdleLoopSleeps(t *testing.T) {
	loops := start(t, 1)
	near, far := pair(t)
	sock := socket.New(near)
	read := make(chan bool, 10)
	h := newHandler(func(it *Iteration) Next {
		defer func() { read <- true }()
		if _, err := sock.TryRead(it.Buffer(64)); err != nil && err != syscall.EAGAIN {
			return Leave
		}
		return Stay
	})
	reg := loops.NewRegistration(h, sock.Raw())
	done := make(chan struct{})
	go func() { // ends when far closes
		defer close(done)
		h.park(reg)
	}()
	io.WriteString(far, "x")
	testwait.For(t, "the byte", read)
	testwait.Blocked(t, "eventloop.(*loop).run")
	far.Close()
	<-done
}
