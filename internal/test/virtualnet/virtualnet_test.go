//go:build !race

package virtualnet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// connected returns both ends of a connection, in a bubble.
func connected(t *testing.T, test func(t *testing.T, near, far *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ln := Listen()
		defer ln.Close()
		near, err := Dial(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		defer far.Close()
		test(t, near.(*Conn), far.(*Conn))
	})
}

func read(t *testing.T, c net.Conn, want string, wantErr error) {
	t.Helper()
	b := make([]byte, 100)
	n, err := c.Read(b)
	if string(b[:n]) != want || !errors.Is(err, wantErr) {
		t.Errorf("read %q, %v, want %q, %v", b[:n], err, want, wantErr)
	}
}

func write(t *testing.T, c net.Conn, data string, want error) {
	t.Helper()
	if n, err := c.Write([]byte(data)); !errors.Is(err, want) || err == nil && n < len(data) {
		t.Errorf("wrote %d bytes, %v, want %v", n, err, want)
	}
}

func TestKeepsWhatIsWritten(t *testing.T) {
	connected(t, func(t *testing.T, near, far *Conn) {
		write(t, near, "one", nil)
		write(t, near, "two", nil)
		write(t, far, "back", nil)
		read(t, far, "onetwo", nil)
		if near.LocalAddr().String() != far.RemoteAddr().String() ||
			near.RemoteAddr().String() != far.LocalAddr().String() || !Has(near.LocalAddr().String()) {
			t.Errorf("%v to %v", near.LocalAddr(), near.RemoteAddr())
		}
		near.CloseWrite()
		read(t, far, "", io.EOF)
		read(t, near, "back", nil)
		write(t, near, "x", syscall.EPIPE)
		far.Close()
		read(t, near, "", io.EOF)
		read(t, far, "", net.ErrClosed)
		write(t, far, "x", net.ErrClosed)
	})
}

func TestWriterWaitsForRoom(t *testing.T) {
	connected(t, func(t *testing.T, near, far *Conn) {
		began := time.Now()
		go func() {
			time.Sleep(time.Hour)
			io.ReadFull(far, make([]byte, room))
		}()
		write(t, near, string(make([]byte, 2*room)), nil)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %v", took)
		}
		near.SetWriteDeadline(time.Now().Add(time.Minute))
		write(t, near, "x", os.ErrDeadlineExceeded)
		if took := time.Since(began); took != time.Hour+time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

func TestDeadlines(t *testing.T) {
	connected(t, func(t *testing.T, near, far *Conn) {
		began := time.Now()
		near.SetReadDeadline(began.Add(time.Hour))
		go func() {
			time.Sleep(time.Minute)
			near.SetReadDeadline(began.Add(time.Second))
		}()
		read(t, near, "", os.ErrDeadlineExceeded)
		write(t, far, "late", nil)
		read(t, near, "", os.ErrDeadlineExceeded)
		near.SetReadDeadline(time.Time{})
		read(t, near, "late", nil)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

func TestResets(t *testing.T) {
	connected(t, func(t *testing.T, near, far *Conn) {
		write(t, near, "unread", nil)
		write(t, far, "read", nil)
		far.Close()
		read(t, near, "read", nil)
		read(t, near, "", syscall.ECONNRESET)
		write(t, near, "x", syscall.EPIPE)
	})
	connected(t, func(t *testing.T, near, far *Conn) {
		far.Close()
		write(t, near, "into the void", nil)
		write(t, near, "x", syscall.EPIPE)
		read(t, near, "", syscall.ECONNRESET)
	})
	connected(t, func(t *testing.T, near, far *Conn) {
		write(t, far, "lost", nil)
		far.SetLinger(0)
		far.Close()
		read(t, near, "", syscall.ECONNRESET)
	})
}

func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := Listen()
		began := time.Now()
		ln.SetDeadline(began.Add(time.Second))
		if _, err := ln.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		waits, err := Dial(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		read(t, waits, "", syscall.ECONNRESET)
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener accepts: %v", err)
		}
		if _, err := Dial(t.Context(), "tcp", ln.Addr().String()); !errors.Is(err,
			syscall.ECONNREFUSED) {
			t.Errorf("a closed listener is dialled: %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := Dial(ended, "tcp", ln.Addr().String()); !errors.Is(err, context.Canceled) {
			t.Errorf("dialled without an answer: %v", err)
		}
	})
}
