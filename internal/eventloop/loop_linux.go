package eventloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
)

// maxEvents bounds the events of one Iteration.
const maxEvents = 128

// Loops divide the Registrations among them. Make them with Start.
type Loops struct {
	list []*loop
	next atomic.Uint32

	iterating atomic.Int32 // loops that will look at posted at the end of their iterations
	rung      atomic.Uint32
	mu        sync.Mutex
	posted    []*Registration // guarded by mu; see Post
	many      atomic.Int32    // of posted
}

// loop is one goroutine and its epoll instance. Go's scheduler watches that in turn, so the loop
// waits as any goroutine does that reads.
type loop struct {
	of    *Loops
	file  *os.File // the epoll instance
	ended chan struct{}
	bell  int // an eventfd that yield writes to; -1 if Go runs on several processors
	call  int // an eventfd that Answer and post write to

	asked  atomic.Bool // Answer waits for the end of an iteration
	answer chan struct{}

	mu    sync.Mutex
	slots []slot  // guarded by mu
	free  []int32 // guarded by mu; numbers of slots without a Registration

	// Only the loop's goroutine:
	events    [maxEvents]unix.EpollEvent
	batch     []event
	again     []*Registration
	iteration Iteration
	spin      spin
	spinning  bool // it has not slept since the last look
}

// slot holds a Registration. The kernel is given the slot's number and generation, and returns both
// with each event.
type slot struct {
	reg        *Registration
	generation int32
}

// event says that something has arrived for a Registration.
type event struct {
	reg *Registration
	// hangup: the peer has closed, the connection is broken, or urgent data has arrived, in front
	// of which a read can stop.
	hangup bool
}

// slotRef says which slot a Registration has.
type slotRef struct {
	loop       *loop // nil for none
	number     int32
	generation int32
}

// Start starts n loops, which the caller must Stop. Where there is no event loop it returns nil.
func Start(n int) (*Loops, error) {
	ls := &Loops{}
	for range n {
		l, err := newLoop(ls)
		if err != nil {
			ls.Stop()
			return nil, err
		}
		ls.list = append(ls.list, l)
		go l.run() // ends with Stop, which waits for it
	}
	return ls, nil
}

func newLoop(ls *Loops) (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that package os waits for it with the scheduler
	}
	if err != nil {
		return nil, fmt.Errorf("start an event loop: %w", err)
	}
	l := &loop{of: ls, file: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{}), bell: -1,
		call: -1, answer: make(chan struct{}, 1)}
	l.slots = make([]slot, 1) // that of the eventfds: they have no Registration
	if l.call, err = watchedEventfd(fd); err == nil && runtime.GOMAXPROCS(0) == 1 {
		l.bell, err = watchedEventfd(fd)
	}
	if err != nil {
		l.file.Close()
		l.closeEventfds()
		return nil, fmt.Errorf("start an event loop: %w", err)
	}
	return l, nil
}

// watchedEventfd is an eventfd by which an epoll instance is woken.
func watchedEventfd(epoll int) (fd int, err error) {
	if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return -1, err
	}
	return fd, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET})
}

func (l *loop) closeEventfds() {
	l.mu.Lock() // for Answer
	defer l.mu.Unlock()
	for _, fd := range [...]int{l.bell, l.call} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	l.bell, l.call = -1, -1
}

// Answer returns once each loop has gone through an iteration since the call, or when ctx ends. A
// loop that is stuck never does. One goroutine calls Answer at a time.
func (ls *Loops) Answer(ctx context.Context) error {
	loopguard.MayWait()
	if ls == nil {
		return nil
	}
	for i, l := range ls.list {
		select {
		case <-l.answer: // to an earlier call, whose ctx has ended
		default:
		}
		l.asked.Store(true)
		l.mu.Lock()
		l.ringLocked()
		l.mu.Unlock()
		select {
		case <-l.answer:
		case <-l.ended:
		case <-ctx.Done():
			return fmt.Errorf("event loop %d of %d does not answer: %w", i+1, len(ls.list),
				ctx.Err())
		}
	}
	return nil
}

// Stop ends the loops, and returns when they have ended. A connection that is parked then stays so
// until Wake is called.
func (ls *Loops) Stop() {
	if ls == nil {
		return
	}
	for _, l := range ls.list {
		l.file.Close()
		<-l.ended
		l.closeEventfds()
	}
}

// register makes the kernel watch the connection, if it can.
func (r *Registration) register() {
	l := r.loops.list[r.loops.next.Add(1)%uint32(len(r.loops.list))]
	l.acquireSlot(r)
	if l.control(unix.EPOLL_CTL_ADD, r) != nil {
		l.releaseSlot(r)
	}
}

func (r *Registration) registered() bool { return r.loop != nil }

// Unregister ends the Registration for good: its Handler is not called any more. The goroutine that
// reads calls it, so not while the connection is parked, and before another Registration gets the
// connection.
func (r *Registration) Unregister() {
	if r == nil || r.loop == nil {
		return
	}
	r.loop.control(unix.EPOLL_CTL_DEL, r) // fails if the connection is closed, which has removed it
	r.loop.releaseSlot(r)
}

func (l *loop) acquireSlot(r *Registration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		l.free = append(l.free, int32(len(l.slots)))
		l.slots = append(l.slots, slot{})
	}
	number := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	at := &l.slots[number]
	at.reg = r
	at.generation++
	r.slotRef = slotRef{l, number, at.generation}
}

func (l *loop) releaseSlot(r *Registration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots[r.number].reg = nil
	l.free = append(l.free, r.number)
	r.slotRef = slotRef{}
}

// post has a loop call a Handler: one that is in an iteration, or else one that it wakes.
func (ls *Loops) post(r *Registration) {
	ls.mu.Lock()
	ls.posted = append(ls.posted, r)
	ls.many.Store(int32(len(ls.posted)))
	ls.mu.Unlock()
	if ls.iterating.Load() > 0 {
		return
	}
	l := ls.list[ls.rung.Add(1)%uint32(len(ls.list))]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ringLocked()
}

// callPosted calls the Handlers of what was posted. It reports whether there was any.
func (l *loop) callPosted() (any bool) {
	ls := l.of
	if ls.many.Load() == 0 {
		return false
	}
	ls.mu.Lock()
	posted := ls.posted
	ls.posted = nil
	ls.many.Store(0)
	ls.mu.Unlock()
	for _, r := range posted {
		if r.onPost(&l.iteration) {
			l.again = append(l.again, r)
		}
	}
	return len(posted) > 0
}

// ringLocked wakes the loop. mu is held.
func (l *loop) ringLocked() {
	if l.call >= 0 {
		unix.Write(l.call, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a full one has woken the loop, too
	}
}

// control makes the kernel begin or stop watching a connection.
func (l *loop) control(op int, r *Registration) error {
	epoll, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	event := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET,
		Fd:     r.number, Pad: r.generation,
	}
	if r.handler == nil {
		event.Events = unix.EPOLLRDHUP | unix.EPOLLET // the kernel adds errors
	}
	var closed, refused error
	err = epoll.Control(func(epfd uintptr) {
		closed = r.conn.Control(func(fd uintptr) {
			refused = unix.EpollCtl(int(epfd), op, int(fd), &event)
		})
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
		if !l.spinning {
			l.spin.woken(now())
		}
		for l.spinning = false; ; {
			n := poll(fd, l.events[:])
			at := now()
			l.spin.looked(at)
			if l.iterate(l.events[:n]) {
				at = now()
				l.spin.handled(at)
			}
			switch {
			case n == maxEvents || len(l.again) > 0:
				runtime.Gosched()
			case !l.spin.goesOn(at):
				return false
			case l.yield():
				l.spinning = true
				return false
			}
		}
	})
}

// now is the time for spin.
func now() time.Duration { return time.Duration(monotonic.Now()) }

// hangups are the events that end reading in the loop: see event.
const hangups = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLPRI

// iterate is one Iteration. It reports whether there was something to do.
func (l *loop) iterate(events []unix.EpollEvent) (busy bool) {
	if len(events) == 0 && len(l.again) == 0 && l.of.many.Load() == 0 {
		return false // it spins
	}
	l.of.iterating.Add(1)
	again := l.again
	l.again = nil
	for _, r := range again {
		if r.onAgain(&l.iteration) {
			l.again = append(l.again, r)
		}
	}
	l.batch = l.batch[:0]
	l.mu.Lock()
	for _, e := range events {
		if at := l.slots[e.Fd]; at.reg != nil && at.generation == e.Pad {
			l.batch = append(l.batch, event{at.reg, e.Events&hangups != 0})
			if e.Events&hangups&^unix.EPOLLPRI != 0 {
				at.reg.closed.CompareAndSwap(0, monotonic.Now())
			}
		}
	}
	l.mu.Unlock()
	busy = len(again) > 0 || len(l.batch) > 0
	for i, e := range l.batch {
		if e.hangup {
			e.reg.Wake()
		} else if e.reg.onEvent(&l.iteration) {
			l.again = append(l.again, e.reg)
		}
		l.batch[i] = event{}
	}
	busy = l.callPosted() || busy
	l.iteration.Flush()
	// Who has posted since then, and has seen that it iterates, has woken no loop.
	for l.of.iterating.Add(-1); l.callPosted(); busy = true {
		l.iteration.Flush()
	}
	if l.asked.Load() && l.asked.Swap(false) {
		select {
		case l.answer <- struct{}{}:
		default:
		}
	}
	return busy
}

// poll returns the events that have arrived. It does not wait, so the scheduler need not know of
// the call.
func poll(fd uintptr, events []unix.EpollEvent) int {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd,
			uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case syscall.EINTR:
		default:
			return 0
		}
	}
}
