package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var errClosed = errors.New("the server closed the connection")

// run is one Drive.
type run struct {
	*Clients
	Plan
	schedule
	ctx         context.Context
	began       time.Time
	begun       int // requests of the schedule whose time has come
	outstanding int // clients that wait for a reply
	answered    int // requests answered within Time
	result      Result
	events      [256]unix.EpollEvent
	buf         []byte
}

// Drive runs a plan. After an error the clients can't be used again.
func (c *Clients) Drive(ctx context.Context, p Plan) (Result, error) {
	r := &run{Clients: c, Plan: p, ctx: ctx, buf: make([]byte, max(64<<10, len(p.Reply)+1))}
	if r.Grace == 0 {
		r.Grace = DefaultGrace
	}
	size := 1 << 18
	if p.Rate > 0 {
		r.schedule = newSchedule(p.Rate, p.Time)
		size = r.total
	}
	r.result.Latencies = make([]time.Duration, 0, size)
	ended := make(chan error)
	go func() {
		// The thread ends with this goroutine, since it isn't unlocked: what is set below is for
		// the run alone.
		runtime.LockOSThread()
		unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		ended <- r.drive()
	}()
	err := <-ended
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.addr, err)
	}
	r.result.Rate = float64(r.answered) / p.Time.Seconds()
	return r.result, nil
}

func (r *run) now() int64 { return int64(time.Since(r.began)) }

func (r *run) drive() error {
	r.began = time.Now()
	for i := range r.conns {
		r.conns[i] = conn{fd: r.conns[i].fd, next: i}
	}
	if err := r.sendFirst(); err != nil {
		return err
	}
	end, giveUp := int64(r.Time), int64(r.Time+r.Grace)
	for now := r.now(); now < end || r.begun < r.total || r.outstanding > 0; now = r.now() {
		if now > giveUp {
			r.charge(now)
			return nil
		}
		if err := r.sendDue(now); err != nil {
			return err
		}
		if err := r.receive(r.pause(now, end)); err != nil {
			return err
		}
		if err := r.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// sendFirst begins a closed loop.
func (r *run) sendFirst() error {
	if r.Rate > 0 {
		return nil
	}
	for i := range r.conns {
		if err := r.send(&r.conns[i], r.now()); err != nil {
			return err
		}
	}
	return nil
}

// sendDue begins the requests whose time has come. Those of busy clients are sent when the reply
// before them has come.
func (r *run) sendDue(now int64) error {
	for ; r.begun < r.total && r.due(r.begun) <= now; r.begun++ {
		c := &r.conns[r.begun%len(r.conns)]
		if c.busy {
			continue
		}
		if err := r.send(c, r.due(c.next)); err != nil {
			return err
		}
	}
	return nil
}

// pause is how long nothing needs be done unless a reply comes; ns.
func (r *run) pause(now, end int64) int64 {
	next := end
	if now >= end {
		next = end + int64(r.Grace)
	}
	if r.begun < r.total {
		next = min(next, r.due(r.begun))
	}
	// Not so long that the end of ctx would go unnoticed.
	return min(max(next-now, 0), int64(100*time.Millisecond))
}

func (r *run) send(c *conn, since int64) error {
	n, err := unix.Write(c.fd, r.Request)
	if err == nil && n < len(r.Request) {
		err = fmt.Errorf("the system took only %d of %d bytes at once: use a shorter request", n,
			len(r.Request))
	}
	if err != nil {
		return fmt.Errorf("cannot send: %w", err)
	}
	c.busy, c.got, c.sent = true, 0, since
	r.outstanding++
	return nil
}

// receive waits for replies at most for a time, in ns, and takes those that have come.
func (r *run) receive(pause int64) error {
	n, err := r.wait(pause)
	if err != nil {
		return err
	}
	for _, event := range r.events[:n] {
		if err := r.read(&r.conns[event.Fd]); err != nil {
			return err
		}
	}
	return nil
}

// wait is epoll_pwait2, whose timeout is exact to the nanosecond where that of epoll_wait is to the
// millisecond.
func (r *run) wait(pause int64) (int, error) {
	timeout := unix.NsecToTimespec(pause)
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(r.epoll),
		uintptr(unsafe.Pointer(&r.events[0])), uintptr(len(r.events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	case unix.ENOSYS:
		return 0, errors.New("the load generator needs Linux 5.11 or later (epoll_pwait2)")
	}
	return 0, fmt.Errorf("cannot wait for replies: %w", errno)
}

func (r *run) read(c *conn) error {
	n, err := unix.Read(c.fd, r.buf)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return fmt.Errorf("cannot receive: %w", err)
	case n == 0:
		return errClosed
	}
	rest := r.Reply[c.got:]
	if !c.busy || n > len(rest) || !bytes.Equal(r.buf[:n], rest[:n]) {
		return &WrongReply{Got: bytes.Clone(r.buf[:n]), Want: rest}
	}
	if c.got += n; c.got == len(r.Reply) {
		return r.done(c)
	}
	return nil
}

// done takes a whole reply, and sends what this client has to send next, if its time has come.
func (r *run) done(c *conn) error {
	now := r.now()
	r.result.Latencies = append(r.result.Latencies, time.Duration(now-c.sent))
	c.busy = false
	r.outstanding--
	if now < int64(r.Time) {
		r.answered++
	}
	if r.Rate == 0 {
		if now < int64(r.Time) {
			return r.send(c, now)
		}
		return nil
	}
	c.next += len(r.conns)
	if c.next < r.begun {
		return r.send(c, r.due(c.next))
	}
	return nil
}

// charge counts those without a reply as what they have waited until now.
func (r *run) charge(now int64) {
	unanswered := func(since int64) {
		r.result.Unanswered++
		r.result.Latencies = append(r.result.Latencies, time.Duration(now-since))
	}
	for i := range r.conns {
		c := &r.conns[i]
		if c.busy {
			unanswered(c.sent)
			c.next += len(r.conns)
		}
		for ; c.next < r.begun && r.Rate > 0; c.next += len(r.conns) {
			unanswered(r.due(c.next))
		}
	}
}
