package passthrough

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"testing"

	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
)

// tcpPair is two ends of a connection.
func tcpPair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	if near, err = ln.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); nc.Close() })
	return near, nc
}

// However bytes are given, and however slowly they are taken, they come in order. Then the
// connection closes.
func TestClientWriterOrder(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		near, far := tcpPair(t)
		var direct *socket.Socket
		if !encrypted {
			direct = socket.New(near)
		}
		w := newClientWriter(near, direct, &unreadTotal{limit: 1 << 30})
		const total = 1 << 20 // of 8 bytes each
		go func() {           // ends when all is given; the reader below waits for that
			next := uint64(0)
			piece := func() []byte {
				b := make([]byte, 0, 8<<10)
				for range 1 + rand.IntN(1000) {
					if next < total {
						b, next = binary.BigEndian.AppendUint64(b, next), next+1
					}
				}
				return b
			}
			for next < total {
				w.send(piece(), piece())
				if rand.IntN(100) == 0 {
					w.waitBelow(int64(rand.IntN(1 << 20)))
				}
			}
			w.finish()
		}()
		far.SetReadDeadline(testwait.Deadline())
		buf := make([]byte, 64<<10)
		want := uint64(0)
		for {
			n, err := io.ReadFull(far, buf[:8*(1+rand.IntN(len(buf)/8))])
			for b := buf[:n]; len(b) >= 8; b = b[8:] {
				if got := binary.BigEndian.Uint64(b); got != want {
					t.Fatalf("encrypted %v: got %d, want %d", encrypted, got, want)
				}
				want++
			}
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if rand.IntN(50) == 0 {
				runtime.Gosched()
			}
		}
		if want != total {
			t.Errorf("encrypted %v: it closed after %d of %d", encrypted, want, total)
		}
		w.wait()
		w.mu.Lock()
		if w.queue.file != nil || w.drains {
			t.Error("something is left")
		}
		w.mu.Unlock()
	}
}

// send waits for neither a client that does not read nor a file that takes nothing, and once the
// file takes it, what the client doesn't read is not kept in memory.
func TestClientWriterSendDoesNotWait(t *testing.T) {
	near, far := tcpPair(t)
	w := newClientWriter(near, socket.New(near), &unreadTotal{limit: 1 << 30})
	piece := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	const pieces = 1000
	for range pieces { // while nobody reads
		w.send(piece)
	}
	testwait.Until(t, "it is in the file", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.queue.unspilled() == 0
	})
	w.mu.Lock()
	memory, queued := len(w.queue.mem), w.queue.len()
	w.mu.Unlock()
	if memory > overflowMemory || queued < 32<<20 {
		t.Errorf("%d bytes in memory of %d", memory, queued)
	}
	w.finish()
	far.SetReadDeadline(testwait.Deadline())
	n, err := io.Copy(io.Discard, far)
	if n != pieces*int64(len(piece)) || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	w.wait()
}

// A file that takes nothing for as long as it likes holds up neither who gives the client something
// nor who asks for the clientWriter's status, as an event loop does. Here the file is a pipe that
// nobody reads. When it breaks, the client is closed.
func TestClientWriterWithASlowFile(t *testing.T) {
	from, slow, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	near, far := tcpPair(t)
	dropped := make(chan error, 1)
	w := newClientWriter(near, socket.New(near), &unreadTotal{limit: 1 << 30,
		dropped: func(_ net.Addr, err error) { dropped <- err }})
	writing := make(chan struct{})
	w.queue.openFile = func() (*os.File, error) {
		close(writing)
		buf := make([]byte, 1<<20)
		slow.Write(buf) // until the test closes the other end
		return slow, nil
	}
	for range 100 {
		w.send(make([]byte, 64<<10))
	}
	testwait.For(t, "the file is written", writing)
	for range 100 {
		w.send(make([]byte, 64<<10))
	}
	if unread, given, err := w.status(); !unread || given != 200*64<<10 || err != nil {
		t.Errorf("unread %v, %d bytes given, %v", unread, given, err)
	}
	from.Close()
	if err := testwait.For(t, "the client is closed", dropped); err == nil {
		t.Error("it does not say why")
	}
	if w.wait(); w.queue.len() != 0 || w.queue.all.inFiles.Load() != 0 ||
		w.queue.all.unspilled.Load() != 0 {
		t.Error("something is left")
	}
	far.Close()
}

// A client that closes ends waitBelow.
func TestClientWriterOfAClientThatHasGone(t *testing.T) {
	near, far := tcpPair(t)
	w := newClientWriter(near, socket.New(near), &unreadTotal{limit: 1 << 30})
	w.send(make([]byte, 32<<20))
	waited := make(chan struct{})
	go func() { // ends when the client has closed; the test waits for it
		defer close(waited)
		w.waitBelow(0)
	}()
	testwait.Blocked(t, "passthrough.(*clientWriter).waitBelow")
	select {
	case <-waited:
		t.Fatal("waitBelow didn't wait")
	default:
	}
	far.SetLinger(0)
	far.Close()
	testwait.For(t, "waitBelow ends with the client", waited)
	w.wait()
	if _, _, err := w.status(); err == nil || w.queue.len() != 0 {
		t.Errorf("the client is gone: %v, %d bytes queued", err, w.queue.len())
	}
	w.send([]byte("x"))
	if w.queue.len() != 0 {
		t.Error("something is kept for a client that is disconnected")
	}
}
