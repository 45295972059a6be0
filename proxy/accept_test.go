package proxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"lockproxy/internal/test/testwait"
)

// lateConn and lateListener are on a machine that stops behind each deadline that is set, until it
// has passed.
type lateConn struct{ *net.TCPConn }

func (c lateConn) SetWriteDeadline(time.Time) error {
	return c.TCPConn.SetWriteDeadline(time.Unix(1, 0))
}

type lateListener struct {
	*net.TCPListener
	late *int // of so many deadlines
}

func (l lateListener) SetDeadline(t time.Time) error {
	if *l.late > 0 {
		*l.late--
		t = time.Unix(1, 0)
	}
	return l.TCPListener.SetDeadline(t)
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

func dial(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	far.SetDeadline(testwait.Deadline())
	return far
}

// A client that is sent away is told why, however slow the machine is.
func TestClientsAreToldWhyTheyAreSentAway(t *testing.T) {
	for want, sendAway := range map[string]func(raw net.Conn){
		"-ERR max number of clients reached\r\n": func(raw net.Conn) { refuse(raw, true) },
		"-ERR expected a PROXY header, since this address is one of --proxy-protocol-from\r\n": func(
			raw net.Conn) {
			c := newClient(raw, proxyproto.NewConn(raw, proxyproto.WithPolicy(proxyproto.REQUIRE)))
			c.readHeader()
			raw.Close()
		},
	} {
		ln := listen(t)
		far := dial(t, ln)
		io.WriteString(far, "PING\r\nPING\r\nPING\r\n")
		near, err := ln.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		sendAway(lateConn{near})
		if got, _ := io.ReadAll(far); string(got) != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
}

// A server that shuts down accepts the clients that wait already, also if the machine stops until
// the time for others is over.
func TestWaitingClientsAreAccepted(t *testing.T) {
	for _, late := range []int{0, 1, 3} {
		ln := listen(t)
		const clients = 3
		for range clients {
			testwait.Connected(t, dial(t, ln))
		}
		l := newListener(lateListener{ln, &late})
		finished := make(chan struct{})
		go func() { // waited for below
			defer close(finished)
			l.finish(time.Now())
		}()
		testwait.Until(t, "it finishes", func() bool { return l.last.Load() != nil })
		accepted := 0
		for {
			nc, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("Accept: %v", err)
				}
				break
			}
			accepted++
			nc.(interface{ Close() error }).Close()
		}
		<-finished
		if accepted != clients {
			t.Errorf("%d of %d clients were accepted", accepted, clients)
		}
	}
}
