//go:build linux

package eventloop

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/socket"
)

const patience = 10 * time.Second

func start(t testing.TB, n int) *Loops {
	t.Helper()
	before := runtime.NumGoroutine()
	loops, err := Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		loops.Stop()
		for over := time.Now().Add(patience); runtime.NumGoroutine() > before; {
			if time.Now().After(over) {
				t.Fatalf("%d goroutines, before it was started %d", runtime.NumGoroutine(), before)
			}
			time.Sleep(time.Millisecond)
		}
	})
	return loops
}

func pair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return accepted.(*net.TCPConn), dialled.(*net.TCPConn)
}

// resumed lets a test's goroutine wait as long as it would be parked.
type resumed chan struct{}

func (c resumed) Resume() { c <- struct{}{} }

// park returns false if the Registration can't be parked.
func (c resumed) park(r *Registration) bool {
	parked := r.Park()
	if parked {
		<-c
	}
	return parked
}

// randomReader reads one connection, sometimes in the loop and sometimes in its goroutine.
type randomReader struct {
	reg    *Registration
	socket *socket.Socket
	leave  int // the loop leaves every so many reads to the goroutine; 0 is none
	again  bool
	reads  int
	inside atomic.Int32 // how many read at this moment
	resumed
	loop int // reads by the loop

	mu  sync.Mutex
	got []byte
	err error
}

func newReader(loops *Loops, conn net.Conn, leave int) *randomReader {
	r := &randomReader{socket: socket.New(conn), leave: leave, resumed: make(resumed, 1)}
	r.reg = loops.NewRegistration(r, r.socket.Raw())
	return r
}

func (r *randomReader) took(b []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, b...)
	r.err = err
}

func (r *randomReader) state() (got []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.got), r.err
}

func (r *randomReader) Ready(it *Iteration) Next {
	if r.inside.Add(1) != 1 {
		panic("two read at once")
	}
	defer r.inside.Add(-1)
	buf := it.Buffer(64)
	n, err := r.socket.TryRead(buf)
	if err == syscall.EAGAIN {
		return Stay
	}
	r.loop++
	r.took(buf[:n], err)
	r.reads++
	switch {
	case err != nil, r.leave > 0 && r.reads%r.leave == 0:
		return Leave
	case n < len(buf):
		return Stay
	case r.reads%2 == 0:
		return Again
	}
	return Leave
}

// run reads to the end of the connection.
func (r *randomReader) run() {
	buf := make([]byte, 64)
	for drained := true; ; {
		if drained && r.park(r.reg) {
			if _, err := r.state(); err != nil {
				return
			}
		}
		if r.inside.Add(1) != 1 {
			panic("two read at once")
		}
		n, err := r.socket.Read(buf)
		r.inside.Add(-1)
		r.took(buf[:n], err)
		if err != nil {
			return
		}
		drained = n < len(buf)
	}
}

// Everything is read once and in order, in whatever pieces it is sent, and the end is noticed,
// though the loop and the goroutine take turns all the time.
func TestNothingIsMissed(t *testing.T) {
	for _, procs := range []int{1, 2, 4} {
		was := runtime.GOMAXPROCS(procs)
		nothingIsMissed(t)
		runtime.GOMAXPROCS(was)
	}
}

func nothingIsMissed(t *testing.T) {
	loops := start(t, 2)
	var all sync.WaitGroup
	var byLoop atomic.Int64
	for i := range 60 {
		near, far := pair(t)
		r := newReader(loops, near, i%4)
		all.Go(func() { // ends with the connection
			r.run()
			r.reg.Unregister()
			near.Close()
		})
		all.Go(func() { // ends within a second, or by its deadline
			far.SetDeadline(time.Now().Add(patience))
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			var sent []byte
			for range 200 {
				piece := make([]byte, 1+rng.IntN(200))
				for k := range piece {
					piece[k] = byte(rng.Uint32())
				}
				far.Write(piece)
				sent = append(sent, piece...)
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
				}
			}
			switch i % 3 {
			case 0:
				far.CloseWrite()
			case 1:
				far.Close()
			case 2: // the reset must find everything read
				for over := time.Now().Add(patience); time.Now().Before(over); {
					time.Sleep(time.Millisecond)
					if got, _ := r.state(); len(got) == len(sent) {
						break
					}
				}
				far.SetLinger(0)
				far.Close()
			}
			var got []byte
			for over := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				var err error
				if got, err = r.state(); err != nil {
					break
				}
				if time.Now().After(over) {
					t.Errorf("connection %d: no end: %d bytes of %d", i, len(got), len(sent))
					near.Close()
					r.reg.Wake()
					return
				}
			}
			if !bytes.Equal(got, sent) {
				t.Errorf("connection %d: %d bytes, %d were sent", i, len(got), len(sent))
			}
			byLoop.Add(int64(r.loop))
		})
	}
	all.Wait()
	if n := byLoop.Load(); n == 0 {
		t.Error("the loop has read nothing")
	}
}

// The end of a connection is noticed also when it came with the last bytes, or before Park.
func TestEndWithTheLastBytes(t *testing.T) {
	loops := start(t, 1)
	for _, when := range []string{"before", "while"} {
		near, far := pair(t)
		r := newReader(loops, near, 0)
		if when == "before" {
			io.WriteString(far, "last")
			far.Close()
		}
		done := make(chan struct{})
		go func() { // ends with the connection
			defer close(done)
			r.run()
		}()
		if when == "while" {
			time.Sleep(10 * time.Millisecond)
			io.WriteString(far, "last")
			far.Close()
		}
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("%s it waits: the end isn't noticed", when)
		}
		if got, err := r.state(); string(got) != "last" || err != io.EOF {
			t.Errorf("%q, %v", got, err)
		}
		r.reg.Unregister()
	}
}

// What arrives after Register is handled by Park, though the loop is busy with others by then.
func TestParkHandlesWhatHasArrived(t *testing.T) {
	loops := start(t, 1)
	near, far := pair(t)
	r := newReader(loops, near, 0)
	r.reg.Register()
	defer r.reg.Unregister()
	far.Write([]byte("first"))
	for over := time.Now().Add(patience); !r.reg.pending.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(over) {
			t.Fatal("the loop does not learn of it")
		}
	}

	busy, busyPeer := pair(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	block := loops.NewRegistration(newHandler(func(*Iteration) Next {
		close(entered)
		<-leave
		return Stay
	}), socket.New(busy).Raw())
	if !block.Park() {
		t.Fatal("not parked")
	}
	defer block.Unregister()
	defer close(leave)
	busyPeer.Write([]byte("x"))
	<-entered

	if !r.reg.Park() {
		t.Fatal("not parked")
	}
	if got, err := r.state(); string(got) != "first" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// Wake ends Park and each later one, at whatever moment it is called, and nothing that has arrived
// until then is lost.
func TestWake(t *testing.T) {
	loops := start(t, 1)
	for i := range 300 {
		near, far := pair(t)
		r := newReader(loops, near, 0)
		waited := make(chan struct{})
		go func() { // ends by Wake
			defer close(waited)
			for r.reg.Park() {
				<-r.resumed
			}
		}()
		io.WriteString(far, "x")
		for range rand.IntN(200) {
			runtime.Gosched()
		}
		r.reg.Wake()
		select {
		case <-waited:
		case <-time.After(patience):
			t.Fatalf("try %d: parked after Wake", i)
		}
		r.reg.Wake()
		if r.reg.Park() {
			t.Fatal("Park after Wake")
		}
		if got, _ := r.state(); len(got) == 0 {
			near.SetReadDeadline(time.Now().Add(patience))
			if n, err := near.Read(make([]byte, 1)); n != 1 {
				t.Fatalf("try %d: what has come is lost: %v", i, err)
			}
		}
		r.reg.Unregister()
		near.Close()
		far.Close()
	}
	if l := loops.list[0]; len(l.slots) > 2 {
		t.Errorf("%d slots are in use one after the other", len(l.slots))
	}
}

// The Handler of an ended Registration is not called, not even for the next one in its slot.
func TestUnregistered(t *testing.T) {
	loops := start(t, 1)
	near, far := pair(t)
	first := newReader(loops, near, 0)
	if first.reg.register(); !first.reg.registered() {
		t.Fatal("the connection can't be watched")
	}
	first.reg.Unregister()
	first.reg.Unregister()
	second := newReader(loops, near, 0)
	done := make(chan struct{})
	go func() { // ends with the connection
		defer close(done)
		second.run()
	}()
	io.WriteString(far, "hello")
	far.Close()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the second Registration of a connection hears of nothing")
	}
	if got, _ := second.state(); string(got) != "hello" {
		t.Errorf("%q", got)
	}
	if got, _ := first.state(); len(got) != 0 {
		t.Errorf("the first has read %q", got)
	}
	near.Close()
	if third := newReader(loops, near, 0); third.reg.Park() {
		t.Error("a closed connection can be watched")
	}
}

// What the kernel doesn't watch can't be parked.
func TestRefused(t *testing.T) {
	loops := start(t, 1)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	reg := loops.NewRegistration(newHandler(func(*Iteration) Next { return Stay }), raw)
	if reg.Park() {
		t.Error("a file can be parked")
	}
	reg.Unregister()
}

// flushes counts the ends of iterations.
// flushes counts what was put off, and what of that was done.
type flushes struct{ putOff, done, calls atomic.Int32 }

func (f *flushes) Flush() {
	f.calls.Add(1)
	f.done.Store(f.putOff.Load())
}

type handler struct {
	ready func(it *Iteration) Next
	resumed
}

func newHandler(ready func(it *Iteration) Next) handler { return handler{ready, make(resumed, 1)} }

func (h handler) Ready(it *Iteration) Next { return h.ready(it) }

// What Handlers put off to the end of the iteration is done once, after all of them were called.
func TestAtEnd(t *testing.T) {
	loops := start(t, 1)
	var ended flushes
	var waits sync.WaitGroup
	for range 20 {
		near, far := pair(t)
		sock := socket.New(near)
		h := newHandler(func(it *Iteration) Next {
			if _, err := sock.TryRead(it.Buffer(10)); err == syscall.EAGAIN {
				return Stay
			}
			ended.putOff.Add(1)
			it.AtEnd(&ended)
			return Leave
		})
		reg := loops.NewRegistration(h, sock.Raw())
		io.WriteString(far, "x")
		waits.Go(func() { // ends with what has been sent
			h.park(reg)
		})
	}
	waits.Wait()
	for over := time.Now().Add(patience); ended.done.Load() < 20 && time.Now().Before(over); {
		time.Sleep(time.Millisecond)
	}
	if ended.putOff.Load() != 20 || ended.done.Load() != 20 || ended.calls.Load() > 20 {
		t.Errorf("%d were put off, %d done, in %d iterations", ended.putOff.Load(),
			ended.done.Load(), ended.calls.Load())
	}
}

// Without loops nothing is parked, and nothing fails.
func TestNone(t *testing.T) {
	var loops *Loops
	near, _ := pair(t)
	raw, _ := near.SyscallConn()
	reg := loops.NewRegistration(nil, raw)
	if reg.Park() {
		t.Error("a connection is parked though there are no loops")
	}
	reg.Unregister()
	reg.Wake()
	loops.Stop()
}

func TestNoAllocation(t *testing.T) {
	loops := start(t, 1)
	near, far := pair(t)
	got := make(chan struct{}, 1)
	sock := socket.New(near)
	h := newHandler(func(it *Iteration) Next {
		if _, err := sock.TryRead(it.Buffer(64)); err == nil {
			got <- struct{}{}
		}
		return Stay
	})
	reg := loops.NewRegistration(h, sock.Raw())
	done := make(chan struct{})
	go func() { // ends when far closes
		defer close(done)
		h.park(reg)
	}()
	b := []byte("x")
	if n := testing.AllocsPerRun(100, func() {
		far.Write(b)
		<-got
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	far.Close()
	<-done
}
