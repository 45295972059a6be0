package eventloop

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A loop spins for a while: it looks again and again at its connections, without sleeping. Waking a
// thread that sleeps takes longer than relaying a request, so this doubles the speed of a client
// that sends one request after the other.
const (
	// spinFor is for how long a loop spins after something has arrived.
	spinFor = 200 * time.Microsecond
	// restFactor: if nothing arrives for longer than spinFor, spinning has not helped, or other
	// programs have used the processor meanwhile. Then the loop does not spin for so many times as
	// long. So spinning where it does not help costs no more than about 3 % of a processor.
	restFactor = 32
)

// spin decides whether a loop spins or sleeps. Times are those of one clock.
type spin struct {
	last time.Duration // something was last handled, or the loop has slept
	rest time.Duration // the loop does not spin before
}

// woken is called when the loop has slept.
func (s *spin) woken(now time.Duration) { s.last = now }

// looked is called after each look at the connections, before what has arrived is handled.
func (s *spin) looked(now time.Duration) {
	if waited := now - s.last; waited > spinFor {
		s.rest = now + restFactor*waited
	}
}

// handled is called when what had arrived is handled.
func (s *spin) handled(now time.Duration) { s.last = now }

// goesOn reports whether the loop looks again. Otherwise it sleeps.
func (s *spin) goesOn(now time.Duration) bool { return now >= s.rest }

// yield is called between two looks of a loop that spins. Other programs that wait for this
// processor run first, such as the client and Redis: they need not wake another processor, or wait
// until the loop sleeps. If Go runs on a single processor, its scheduler has to look at the
// connections of goroutines as well. For that sleep is true, and the loop is woken at once.
func (l *loop) yield() (sleep bool) {
	syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	if l.bell < 0 {
		return false
	}
	one := uint64(1)
	_, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(l.bell),
		uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	return errno == 0
}
