package eventloop

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is how many Seats are served in one turn.
const maxEvents = 128

// Loops are some loops among which Seats are shared out. Make them with Start.
type Loops struct {
	list []*loop
	next atomic.Uint32
}

// loop is one goroutine and its epoll instance. That is itself watched by Go's scheduler, so the loop waits as any goroutine that reads does.
type loop struct {
	file  *os.File // the epoll instance
	ended chan struct{}

	mu    sync.Mutex
	slots []slot // guarded by mu; whose the events are
	free  []int32

	// Only the loop's goroutine:
	events [maxEvents]unix.EpollEvent
	batch  []event
	again  []*Seat
	turn   Turn
}

// slot is where a Seat is found. Its number and its generation are what the kernel is given, and gives back with an event.
type slot struct {
	seat       *Seat
	generation int32
}

// event is what has come for a Seat.
type event struct {
	seat   *Seat
	hangup bool // the peer has closed, the connection is broken, or a read may stop in front of an urgent byte
}

// entry is where a Seat is.
type entry struct {
	loop       *loop // nil if in none
	number     int32
	generation int32
}

// Start begins n loops, which the caller must Stop. It returns nil where there are none.
func Start(n int) (*Loops, error) {
	ls := &Loops{}
	for range n {
		l, err := newLoop()
		if err != nil {
			ls.Stop()
			return nil, err
		}
		ls.list = append(ls.list, l)
		go l.run() // ends with Stop, which waits for it
	}
	return ls, nil
}

func newLoop() (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // which has no effect but that os takes it for a file that can be waited for
	}
	if err != nil {
		return nil, fmt.Errorf("start an event loop: %w", err)
	}
	return &loop{file: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{})}, nil
}

// Stop ends the loops, and returns when they have ended. No Handler is told of anything behind it, so nobody should Park any more.
func (ls *Loops) Stop() {
	if ls == nil {
		return
	}
	for _, l := range ls.list {
		l.file.Close()
		<-l.ended
	}
}

// enter has the loop look for what comes by conn. If that is impossible the Seat stays outside.
func (s *Seat) enter(conn syscall.RawConn) {
	l := s.loops.list[s.loops.next.Add(1)%uint32(len(s.loops.list))]
	l.take(s)
	err := l.control(unix.EPOLL_CTL_ADD, conn, s.entry)
	if err != nil {
		l.release(s)
	}
}

func (s *Seat) entered() bool { return s.loop != nil }

// Close takes the Seat from its loop: the Handler is told of nothing any more. It is called by the goroutine, not while it is parked, before conn,
// which Enter was given, is used by another or behind its end.
func (s *Seat) Close(conn syscall.RawConn) {
	if s == nil || s.loop == nil {
		return
	}
	s.loop.control(unix.EPOLL_CTL_DEL, conn, s.entry) // has no effect on one that has been closed
	s.loop.release(s)
}

// take finds a slot for a Seat.
func (l *loop) take(s *Seat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		l.free = append(l.free, int32(len(l.slots)))
		l.slots = append(l.slots, slot{})
	}
	number := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	at := &l.slots[number]
	at.seat = s
	at.generation++
	s.entry = entry{l, number, at.generation}
}

func (l *loop) release(s *Seat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots[s.number].seat = nil
	l.free = append(l.free, s.number)
	s.entry = entry{}
}

// control tells the kernel what to watch.
func (l *loop) control(op int, conn syscall.RawConn, e entry) error {
	epoll, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET, Fd: e.number, Pad: e.generation}
	var closed, refused error
	err = epoll.Control(func(epfd uintptr) {
		closed = conn.Control(func(fd uintptr) { refused = unix.EpollCtl(int(epfd), op, int(fd), &event) })
	})
	return errors.Join(err, closed, refused)
}

func (l *loop) run() {
	defer close(l.ended)
	epoll, err := l.file.SyscallConn()
	if err != nil {
		return // it is closed
	}
	epoll.Read(func(fd uintptr) (done bool) { // returns when the file is closed
		for {
			n := wait(fd, l.events[:])
			l.serve(l.events[:n])
			if n < maxEvents && len(l.again) == 0 {
				return false
			}
			runtime.Gosched()
		}
	})
}

// serve is one turn.
func (l *loop) serve(events []unix.EpollEvent) {
	again := l.again
	l.again = nil
	for _, s := range again {
		if s.goOn(&l.turn) {
			l.again = append(l.again, s)
		}
	}
	l.batch = l.batch[:0]
	l.mu.Lock()
	for _, e := range events {
		if at := l.slots[e.Fd]; at.seat != nil && at.generation == e.Pad {
			l.batch = append(l.batch, event{at.seat, e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR|unix.EPOLLPRI) != 0})
		}
	}
	l.mu.Unlock()
	for i, e := range l.batch {
		if e.hangup {
			e.seat.Rouse()
		} else if e.seat.come(&l.turn) {
			l.again = append(l.again, e.seat)
		}
		l.batch[i] = event{}
	}
	l.turn.Flush()
}

// wait takes what has come. It doesn't wait: the scheduler does, which need not be told of so short a call.
func wait(fd uintptr, events []unix.EpollEvent) int {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case syscall.EINTR:
		default:
			return 0
		}
	}
}
