package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
)

func hostileDial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	return nc.(*net.TCPConn)
}

// hostileTalk sends each piece in a packet, closes its side, and returns the reply, which ends when
// the other side closes too.
func hostileTalk(t testing.TB, addr string, pieces ...[]byte) string {
	t.Helper()
	nc := hostileDial(t, addr)
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	go func() { // ends when the connection closes
		for _, piece := range pieces {
			if _, err := nc.Write(piece); err != nil {
				return // refused already
			}
		}
		nc.CloseWrite()
	}()
	answer, err := io.ReadAll(nc)
	// otherwise a reset, which comes when not everything has been read
	if proxytest.IsTimeout(err) {
		t.Errorf("%.60q: the connection stays open; it is answered %.60q", pieces, answer)
	}
	return string(answer)
}

// hostileWatch is a well-behaved client that records how it is served meanwhile.
type hostileWatch struct {
	stop     chan struct{}
	ended    sync.WaitGroup
	requests int
	longest  time.Duration
	err      error
	began    time.Time
	busy     *proxytest.Busy // nil for none
}

func watchHostile(t testing.TB, addr string) *hostileWatch {
	nc := hostileDial(t, addr)
	nc.SetDeadline(time.Now().Add(time.Minute))
	w := &hostileWatch{stop: make(chan struct{}), began: time.Now()}
	w.ended.Go(func() {
		defer nc.Close()
		in := bufio.NewReader(nc)
		for {
			select {
			case <-w.stop:
				return
			default:
			}
			start := time.Now()
			if _, w.err = nc.Write([]byte("PING\r\n")); w.err != nil {
				return
			}
			if line, err := in.ReadString('\n'); line != "+PONG\r\n" {
				w.err = fmt.Errorf("PING is answered %q, %w", line, err)
				return
			}
			w.requests++
			w.longest = max(w.longest, time.Since(start))
		}
	})
	return w
}

// end stops watching and fails the test if the client was refused anything, or had to wait for
// longer than limit. It returns the rate of its requests.
func (w *hostileWatch) end(t testing.TB, limit time.Duration) (perSecond float64) {
	t.Helper()
	close(w.stop)
	w.ended.Wait()
	if w.err != nil {
		t.Errorf("another client meanwhile: %v", w.err)
	}
	if w.busy != nil {
		limit += 3 * w.busy.Longest()
	}
	if w.longest > limit {
		t.Errorf("another client waited %v for its PONG meanwhile", w.longest)
	}
	return float64(w.requests) / time.Since(w.began).Seconds()
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
