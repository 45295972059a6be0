//go:build linux

package eventloop

import (
	"bytes"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
)

// randomReader reads one connection, sometimes in the loop and sometimes in its goroutine.
type randomReader struct {
	reg    *Registration
	socket *socket.Socket
	leave  int // the loop leaves every so many reads to the goroutine; 0 is none
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

func (r *randomReader) Ready(it *Iteration, _ bool) Next {
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

// Everything is read once and in order, however it is cut, and the end is noticed, though the loop
// and the goroutine take turns all the time.
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
		all.Go(func() { // ends with what it sends, or by its deadline
			far.SetDeadline(testwait.Deadline())
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			var sent []byte
			for range 200 {
				piece := make([]byte, 1+rng.IntN(200))
				for k := range piece {
					piece[k] = byte(rng.Uint32())
				}
				far.Write(piece)
				sent = append(sent, piece...)
				switch rng.IntN(16) {
				case 0: // the reader is about to park when the next bytes come, or has parked
					testwait.Holds(func() bool { got, _ := r.state(); return len(got) == len(sent) })
				case 1, 2, 3:
					letOthersRun()
				}
			}
			switch i % 3 {
			case 0:
				far.CloseWrite()
			case 1:
				far.Close()
			case 2: // the reset must find everything read
				testwait.Holds(func() bool { got, _ := r.state(); return len(got) == len(sent) })
				far.SetLinger(0)
				far.Close()
			}
			var got []byte
			if !testwait.Holds(func() (ended bool) {
				var err error
				got, err = r.state()
				return err != nil
			}) {
				t.Errorf("connection %d: no end: %d bytes of %d", i, len(got), len(sent))
				near.Close()
				r.reg.Wake()
				return
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
