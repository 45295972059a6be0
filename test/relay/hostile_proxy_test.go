package relay_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// hostileProxy is a lockproxy process.
type hostileProxy struct {
	t     *testing.T
	cmd   *exec.Cmd
	addr  string
	redis *testredis.Server
}

// startHostileProxy starts bin and ends it with the test,
// which fails if the process has ended before, or badly.
func startHostileProxy(t *testing.T, bin string, redis *testredis.Server) *hostileProxy {
	t.Helper()
	p := &hostileProxy{t: t, addr: fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t)), redis: redis}
	p.cmd = exec.Command(bin, "--listen", p.addr, "--upstream", redis.URL())
	var output bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &output, &output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(15*time.Second, func() { p.cmd.Process.Kill() })
		err := p.cmd.Wait()
		kill.Stop()
		if err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
		if t.Failed() {
			t.Logf("it said:\n%.5000s", output.String())
		}
	})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		nc, err := net.Dial("tcp", p.addr)
		if err == nil {
			nc.Close()
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("the proxy doesn't listen: %v\n%s", err, output.String())
		}
	}
}

// memory is a figure of /proc/PID/status in bytes: VmRSS, or VmHWM, the peak.
func (p *hostileProxy) memory(field string) int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), field+":")
	var kilobytes int64
	if _, err := fmt.Sscan(text, &kilobytes); err != nil {
		p.t.Fatalf("%s in %q: %v", field, status, err)
	}
	return kilobytes << 10
}

// cpu is the processor time that the proxy has used.
func (p *hostileProxy) cpu() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, text, _ := bytes.Cut(stat, []byte(") ")) // the name can contain blanks
	fields := strings.Fields(string(text))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// maxLeft is how much a proxy's memory can stay above its start value:
// 16 MB can be garbage that is not yet worth collecting, in front of a
// used heap that the runtime returns to the kernel only slowly.
const maxLeft = 32 << 20

// settles fails unless the proxy's memory comes back to within maxLeft of before.
func (p *hostileProxy) settles(before int64) {
	p.t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for p.memory("VmRSS") > before+maxLeft {
		if time.Now().After(deadline) {
			p.t.Errorf("%d MB of memory in use, %d MB before", p.memory("VmRSS")>>20, before>>20)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

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
