//go:build linux

package eventloop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
)

func start(t testing.TB, n int) *Loops {
	t.Helper()
	before := runtime.NumGoroutine()
	loops, err := Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		loops.Stop()
		testwait.Until(t, "no more goroutines than before it was started", func() bool {
			return runtime.NumGoroutine() <= before
		})
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

// The end of a connection is noticed even if it came with the last bytes, or before Park.
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
			testwait.Blocked(t, "eventloop.resumed.park")
			io.WriteString(far, "last")
			far.Close()
		}
		testwait.For(t, "the end of the connection, "+when+" it waits", done)
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
	testwait.Until(t, "the loop learns of it", func() bool { return r.reg.pending.Load() != 0 })

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

// Wake ends Park and each later one, whenever it is called, and nothing that has arrived by then is
// lost.
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
		letOthersRun()
		r.reg.Wake()
		testwait.For(t, fmt.Sprintf("try %d: not parked after Wake", i), waited)
		r.reg.Wake()
		if r.reg.Park() {
			t.Fatal("Park after Wake")
		}
		if got, _ := r.state(); len(got) == 0 {
			near.SetReadDeadline(testwait.Deadline())
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
	testwait.For(t, "the second Registration hears of the end", done)
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

func (h handler) Ready(it *Iteration, _ bool) Next { return h.ready(it) }

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
	testwait.Until(t, "all is done", func() bool { return ended.done.Load() == 20 })
	if ended.putOff.Load() != 20 || ended.calls.Load() > 20 {
		t.Errorf("%d were put off, in %d iterations", ended.putOff.Load(), ended.calls.Load())
	}
}

// Loops answer, whether or not anything arrives, and one in which a Handler hangs does not.
func TestAnswer(t *testing.T) {
	loops := start(t, 2)
	for range 100 {
		if err := loops.Answer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	near, far := pair(t)
	sock := socket.New(near)
	hangs, goesOn := make(chan struct{}), make(chan struct{})
	h := newHandler(func(it *Iteration) Next {
		close(hangs)
		<-goesOn
		return Leave
	})
	reg := loops.NewRegistration(h, sock.Raw())
	ended := make(chan struct{})
	go func() { // ends when the Handler does
		defer close(ended)
		h.park(reg)
	}()
	for reg.reader.Load() != parked {
		runtime.Gosched()
	}
	io.WriteString(far, "x")
	testwait.For(t, "the Handler to hang", hangs)
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan error)
	go func() { said <- loops.Answer(ctx) }() // ends with ctx
	cancel()
	if err := testwait.For(t, "Answer", said); !errors.Is(err, context.Canceled) {
		t.Errorf("a loop that hangs: %v", err)
	}
	close(goesOn)
	testwait.For(t, "the end of the Handler", ended)
	if err := loops.Answer(t.Context()); err != nil {
		t.Errorf("the loop that had hung: %v", err)
	}
	loops.Stop()
	if err := loops.Answer(t.Context()); err != nil {
		t.Errorf("loops that have ended: %v", err)
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

// notified counts what Ready reads, and panics if it runs twice at once.
type notified struct {
	resumed
	socket *socket.Socket
	inside atomic.Int32
	read   atomic.Int32
}

func (h *notified) Ready(it *Iteration, arrived bool) Next {
	if h.inside.Add(1) != 1 {
		panic("two are inside at once")
	}
	defer h.inside.Add(-1)
	if !arrived {
		return Stay
	}
	if n, err := h.socket.TryRead(it.Buffer(10)); err == nil {
		h.read.Add(int32(n))
	} else if err != syscall.EAGAIN {
		return Leave
	}
	return Stay
}

// Notify calls Ready in an iteration, and says that nothing has arrived. No notice and no arrival is
// lost, though both come from several goroutines. Without an iteration Resume runs instead.
func TestNotify(t *testing.T) {
	loops := start(t, 1)
	for i := range 300 {
		near, far := pair(t)
		h := &notified{resumed: make(resumed, 1), socket: socket.New(near)}
		reg := loops.NewRegistration(h, h.socket.Raw())
		if !reg.Park() {
			t.Fatal("not parked")
		}
		var waits sync.WaitGroup
		for range 2 {
			waits.Go(func() { // ends by itself
				reg.Notify(&Iteration{})
				letOthersRun()
				reg.Notify(&Iteration{})
			})
		}
		for range 3 {
			io.WriteString(far, "x")
			letOthersRun()
		}
		waits.Wait()
		testwait.Until(t, "all is handled", func() bool {
			return h.read.Load() == 3 && reg.reader.Load() == parked && reg.pending.Load() == 0
		})
		if i%2 == 0 {
			reg.Notify(nil)
		} else {
			reg.Wake()
		}
		<-h.resumed
		reg.Unregister()
		near.Close()
		far.Close()
	}
}

// counted counts how often Ready was called without an arrival, each time for all that was posted
// before.
type counted struct {
	resumed
	posted, seen atomic.Int32
}

func (h *counted) Ready(_ *Iteration, arrived bool) Next {
	if !arrived {
		h.seen.Store(h.posted.Load())
	}
	return Stay
}

// Any goroutine can call Post, also before the connection is parked: then the loop calls Ready.
// None is lost, and no goroutine begins.
func TestPost(t *testing.T) {
	loops := start(t, 1)
	for range 300 {
		near, _ := pair(t)
		h := &counted{resumed: make(resumed, 1)}
		reg := loops.NewRegistration(h, socket.New(near).Raw())
		reg.Post() // nobody reads it yet
		var waits sync.WaitGroup
		for range 3 {
			waits.Go(func() { // ends by itself
				h.posted.Add(1)
				reg.Post()
				letOthersRun()
			})
		}
		letOthersRun()
		if !reg.Park() {
			t.Fatal("not parked")
		}
		waits.Wait()
		testwait.Until(t, "all is seen", func() bool { return h.seen.Load() == 3 })
		reg.Wake()
		<-h.resumed
		if len(h.resumed) > 0 {
			t.Fatal("a goroutine was begun")
		}
		reg.Unregister()
		reg.Post() // harmless
	}
}

// A Handler that Notify calls and that always wants to go on does not keep the loop from others.
func TestNotifyIsFair(t *testing.T) {
	loops := start(t, 1)
	var over atomic.Bool
	defer over.Store(true)
	greedy := newHandler(func(*Iteration) Next {
		if over.Load() {
			return Stay
		}
		return Again
	})
	notified := loops.NewRegistration(greedy, nil)
	if !notified.Park() {
		t.Fatal("not parked")
	}
	near, far := pair(t)
	sock, served := socket.New(near), make(chan struct{}, 2)
	reg := loops.NewRegistration(newHandler(func(it *Iteration) Next {
		if _, err := sock.TryRead(it.Buffer(10)); err == nil {
			notified.Notify(it)
			served <- struct{}{}
		}
		return Stay
	}), sock.Raw())
	if !reg.Park() {
		t.Fatal("not parked")
	}
	for range 2 {
		far.Write([]byte("x"))
		testwait.For(t, "the loop is done with the other", served)
	}
}

// letOthersRun yields to other goroutines a random number of times.
func letOthersRun() {
	for range rand.IntN(200) {
		runtime.Gosched()
	}
}
