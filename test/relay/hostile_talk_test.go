package relay_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

func hostileDial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	nc, err := proxytest.TryDial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(testwait.Deadline())
	return nc.(*net.TCPConn)
}

// hostileTalk sends each piece in a packet, closes its side unless QUIT comes last, and returns the
// reply, which ends when the other side closes too.
func hostileTalk(t testing.TB, addr string, pieces ...[]byte) string {
	t.Helper()
	nc := hostileDial(t, addr)
	defer nc.Close()
	nc.SetDeadline(testwait.Deadline())
	go func() { // ends when the connection closes
		for _, piece := range pieces {
			if _, err := nc.Write(piece); err != nil {
				return // refused already
			}
		}
		if last := pieces[len(pieces)-1]; !bytes.HasSuffix(last, []byte("QUIT\r\n")) {
			nc.CloseWrite()
		}
	}()
	answer, err := io.ReadAll(nc)
	// otherwise a reset, which comes when not everything has been read
	if proxytest.IsTimeout(err) {
		t.Errorf("%.60q: the connection stays open; it is answered %.60q", pieces, answer)
	}
	return string(answer)
}

// hostileWatch is a well-behaved client that is served meanwhile.
type hostileWatch struct {
	stop   chan struct{}
	ended  sync.WaitGroup
	served atomic.Int64
	err    error
}

func watchHostile(t testing.TB, addr string) *hostileWatch {
	nc := hostileDial(t, addr)
	w := &hostileWatch{stop: make(chan struct{})}
	w.ended.Go(func() {
		defer nc.Close()
		in := bufio.NewReader(nc)
		for {
			select {
			case <-w.stop:
				return
			default:
			}
			nc.SetDeadline(testwait.Deadline())
			if _, w.err = nc.Write([]byte("PING\r\n")); w.err != nil {
				return
			}
			if line, err := in.ReadString('\n'); line != "+PONG\r\n" {
				w.err = fmt.Errorf("PING is answered %q, %w", line, err)
				return
			}
			w.served.Add(1)
		}
	})
	return w
}

// serves returns when the client has been served n times more.
func (w *hostileWatch) serves(t testing.TB, n int64) {
	t.Helper()
	had := w.served.Load()
	testwait.Until(t, "another client is served", func() bool { return w.served.Load() >= had+n })
}

// end stops watching and fails the test if the client was refused anything.
func (w *hostileWatch) end(t testing.TB) {
	t.Helper()
	close(w.stop)
	w.ended.Wait()
	if w.err != nil {
		t.Errorf("another client meanwhile: %v", w.err)
	}
}

// hostileExchange sends text and reads a line for each of want, which is its beginning.
func hostileExchange(nc *net.TCPConn, in *bufio.Reader, text string, want ...string) error {
	if _, err := io.WriteString(nc, text); err != nil {
		return err
	}
	for _, want := range want {
		if line, err := in.ReadString('\n'); !strings.HasPrefix(line, want) {
			return fmt.Errorf("got %q, %v; want %q", line, err, want)
		}
	}
	return nil
}

// hostileBytes is b in pieces of one byte.
func hostileBytes(b []byte) (pieces [][]byte) {
	for i := range b {
		pieces = append(pieces, b[i:i+1])
	}
	return pieces
}
