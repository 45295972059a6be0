package relay_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/resp"
	"lockproxy/internal/testhostile"
	"lockproxy/internal/testredis"
)

// Broken, slow and malicious clients harm neither the proxy nor, through it, one another. Memory is
// measured on the real program, which is built without the race detector.
func TestHostileClients(t *testing.T) {
	bin := proxytest.Binary(t)
	redis := testredis.Start(t)
	for name, test := range map[string]func(*testing.T, *hostileProxy){
		"malformed":        hostileMalformed,
		"left incomplete":  hostileIncomplete,
		"byte by byte":     hostileByteByByte,
		"many arguments":   hostileManyArguments,
		"one huge command": hostileHugeCommand,
		"never reads":      hostileNeverReads,
		"slow":             hostileSlow,
		"256 MB":           hostileLargeValue,
	} {
		t.Run(name, func(t *testing.T) {
			p := startHostileProxy(t, bin, redis)
			test(t, p)
			if got := hostileTalk(t, p.addr, []byte("PING\r\n")); got != "+PONG\r\n" {
				t.Errorf("afterwards PING is answered %q", got)
			}
		})
	}
}

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

// eachHostile calls f for every request of the collection, a few at a time.
func eachHostile(t *testing.T, f func(request []byte)) {
	requests := testhostile.Requests(t)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(requests); i = next.Add(1) - 1 {
				f(requests[i])
			}
		})
	}
	workers.Wait()
}

var hostileLockArity = regexp.MustCompile(
	`ERR unknown command 'LOCK', with args beginning with: ('' )?`)

// The reply to every malformed request is Redis's, and the proxy continues to work.
func hostileMalformed(t *testing.T, p *hostileProxy) {
	before := p.memory("VmRSS")
	watch := watchHostile(t, p.addr)
	eachHostile(t, func(request []byte) {
		got, want := hostileTalk(t, p.addr, request), hostileTalk(t, p.redis.Addr(), request)
		// The proxy knows LOCK, Redis doesn't.
		want = hostileLockArity.ReplaceAllString(want,
			"ERR wrong number of arguments for 'lock' command")
		if got != want {
			t.Errorf("%.60q: the answer is %.200q, Redis says %.200q", request, got, want)
		}
		if len(request) < 200 {
			if got := hostileTalk(t, p.addr, hostileBytes(request)...); got != want {
				t.Errorf("%.60q byte by byte: the answer is %.200q, Redis says %.200q", request,
					got, want)
			}
		}
	})
	watch.end(t, time.Second)
	p.settles(before)
}

func hostileBytes(b []byte) (pieces [][]byte) {
	for i := range b {
		pieces = append(pieces, b[i:i+1])
	}
	return pieces
}

// Incomplete requests take no processor time, little memory, and none forever.
func hostileIncomplete(t *testing.T, p *hostileProxy) {
	before := p.memory("VmRSS")
	requests := testhostile.Requests(t)
	for round := range 10 {
		var left []net.Conn
		for _, request := range requests {
			for range 2 {
				nc := hostileDial(t, p.addr)
				nc.Write(request)
				left = append(left, nc)
			}
		}
		time.Sleep(50 * time.Millisecond) // they must have been read
		if round == 0 {
			used := p.cpu()
			time.Sleep(500 * time.Millisecond)
			if used = p.cpu() - used; used > 150*time.Millisecond {
				t.Errorf("clients that send nothing kept the proxy busy for %v of 500 ms", used)
			}
		}
		for _, nc := range left {
			nc.Close()
		}
	}
	p.settles(before)
}

// A long pipeline, in packets of one byte each.
func hostileByteByByte(t *testing.T, p *hostileProxy) {
	before := p.memory("VmRSS")
	var in []byte
	for i := range 300 {
		in = resp.AppendCommand(in, "ECHO", strconv.Itoa(i), "one too many")
		in = resp.AppendCommand(in, "ECHO", strconv.Itoa(i))
	}
	watch := watchHostile(t, p.addr)
	got := hostileTalk(t, p.addr, hostileBytes(in)...)
	watch.end(t, time.Second)
	if want := hostileTalk(t, p.redis.Addr(), in); got != want ||
		strings.Count(got, "\r\n") != 900 {
		t.Errorf("%d bytes of answers, Redis gives %d", len(got), len(want))
	}
	p.settles(before)
}

// The time for 200,000 arguments in small packets is in proportion to their number.
func hostileManyArguments(t *testing.T, p *hostileProxy) {
	before := p.memory("VmRSS")
	const n = 200_000
	in := append(fmt.Appendf(nil, "*%d\r\n$3\r\nDEL\r\n", n),
		bytes.Repeat([]byte("$8\r\nno such \r\n"), n-1)...)
	watch := watchHostile(t, p.addr)
	start := time.Now()
	nc := hostileDial(t, p.addr)
	for len(in) > 0 {
		piece := in[:min(len(in), 1400)]
		if _, err := nc.Write(piece); err != nil {
			t.Fatal(err)
		}
		in = in[len(piece):]
	}
	if line, err := bufio.NewReader(nc).ReadString('\n'); line != ":0\r\n" {
		t.Errorf("answered %q, %v", line, err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	watch.end(t, time.Second)
	nc.Close()
	p.settles(before)
}

// One command of 128 MB leaves no memory behind.
func hostileHugeCommand(t *testing.T, p *hostileProxy) {
	before, most := p.memory("VmRSS"), p.memory("VmHWM")
	const size = 128 << 20
	watch := watchHostile(t, p.addr)
	nc := hostileDial(t, p.addr)
	fmt.Fprintf(nc, "*2\r\n$3\r\nGET\r\n$%d\r\n", size)
	if err := hostileStream(nc, size); err != nil {
		t.Fatal(err)
	}
	io.WriteString(nc, "\r\n")
	if line, err := bufio.NewReader(nc).ReadString('\n'); line != "$-1\r\n" {
		t.Errorf("answered %q, %v", line, err)
	}
	watch.end(t, time.Second)
	if grown := p.memory("VmHWM") - most; grown > 64<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	p.settles(before)
}

// hostilePieces calls f with each piece of a value of size
// bytes, whole megabytes; no two pieces are alike.
func hostilePieces(size int, f func(piece []byte) error) error {
	piece := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	for at := 0; at < size; at += len(piece) {
		copy(piece, fmt.Sprintf("%015d", at))
		if err := f(piece); err != nil {
			return fmt.Errorf("at byte %d: %w", at, err)
		}
	}
	return nil
}

func hostileStream(w io.Writer, size int) error {
	return hostilePieces(size, func(piece []byte) error {
		_, err := w.Write(piece)
		return err
	})
}

// A client asks for 50 MB and reads none of it.
func hostileNeverReads(t *testing.T, p *hostileProxy) {
	setup := hostileDial(t, p.addr)
	fmt.Fprintf(setup, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n", 1<<20)
	if err := hostileStream(setup, 1<<20); err != nil {
		t.Fatal(err)
	}
	io.WriteString(setup, "\r\n")
	if line, err := bufio.NewReader(setup).ReadString('\n'); line != "+OK\r\n" {
		t.Fatalf("SET: %q, %v", line, err)
	}
	undisturbed := watchHostile(t, p.addr)
	time.Sleep(500 * time.Millisecond)
	usual := undisturbed.end(t, time.Second)

	before, most := p.memory("VmRSS"), p.memory("VmHWM")
	deaf := hostileDial(t, p.addr)
	io.WriteString(deaf, strings.Repeat("GET big\r\n", 50))
	time.Sleep(200 * time.Millisecond)
	// The machine is shared: half of the speed before is
	// enough, and other programs can take it for a while.
	var got float64
	for tries := 0; tries < 5 && got < usual/2; tries++ {
		watch := watchHostile(t, p.addr)
		time.Sleep(time.Second)
		got = watch.end(t, time.Second)
	}
	if got < usual/2 {
		t.Errorf("another client gets %.0f answers a second, %.0f before", got, usual)
	}
	if grown := p.memory("VmHWM") - most; grown > 64<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	// It was not cut off: its replies are still there.
	if n, err := io.CopyN(io.Discard, deaf, 50*(1<<20+12)); err != nil {
		t.Errorf("when it reads at last, it gets %d bytes: %v", n, err)
	}
	deaf.Close()
	p.settles(before)
}

// A byte every 10 ms is a valid request, and costs little meanwhile.
func hostileSlow(t *testing.T, p *hostileProxy) {
	const many, each = 1000, 24 << 10
	before := p.memory("VmRSS")
	for range many {
		nc := hostileDial(t, p.addr)
		io.WriteString(nc, "*2\r\n$4\r\nEC")
	}
	time.Sleep(500 * time.Millisecond)
	if grown := p.memory("VmRSS") - before; grown > many*each {
		t.Errorf("%d clients in the middle of a request cost %d bytes each", many, grown/many)
	} else {
		t.Logf("%d clients in the middle of a request cost %d bytes each", many, grown/many)
	}
	nc := hostileDial(t, p.addr)
	for _, b := range hostileBytes([]byte("*2\r\n$4\r\nECHO\r\n$4\r\nslow\r\nLOCK slow 10\r\n")) {
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	in := bufio.NewReader(nc)
	for _, want := range []string{"$4\r\n", "slow\r\n", ":"} {
		if line, err := in.ReadString('\n'); !strings.HasPrefix(line, want) {
			t.Errorf("got %q, %v; want %q", line, err, want)
		}
	}
}

// A value of 256 MB passes in both directions without being held.
func hostileLargeValue(t *testing.T, p *hostileProxy) {
	start := time.Now()
	const size = 256 << 20
	before, most := p.memory("VmRSS"), p.memory("VmHWM")
	watch := watchHostile(t, p.addr)
	nc := hostileDial(t, p.addr)
	in := bufio.NewReaderSize(nc, 1<<20)
	fmt.Fprintf(nc, "*3\r\n$3\r\nSET\r\n$4\r\nhuge\r\n$%d\r\n", size)
	if err := hostileStream(nc, size); err != nil {
		t.Fatal(err)
	}
	io.WriteString(nc, "\r\n")
	if line, err := in.ReadString('\n'); line != "+OK\r\n" {
		t.Fatalf("SET: %q, %v", line, err)
	}
	io.WriteString(nc, "GET huge\r\n")
	if line, err := in.ReadString('\n'); line != fmt.Sprintf("$%d\r\n", size) {
		t.Fatalf("GET: %q, %v", line, err)
	}
	if err := hostileCompare(in, size); err != nil {
		t.Errorf("the value: %v", err)
	}
	io.WriteString(nc, "DEL huge\r\n")
	if line, err := in.ReadString('\n'); line != "\r\n" {
		t.Errorf("after the value: %q, %v", line, err)
	}
	if line, err := in.ReadString('\n'); line != ":1\r\n" {
		t.Errorf("DEL: %q, %v", line, err)
	}
	watch.end(t, 5*time.Second) // Redis itself stands still while it copies as much
	if grown := p.memory("VmHWM") - most; grown > 64<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	p.settles(before)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func hostileCompare(in io.Reader, size int) error {
	got := make([]byte, 1<<20)
	return hostilePieces(size, func(want []byte) error {
		if _, err := io.ReadFull(in, got); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return errors.New("not what was written")
		}
		return nil
	})
}

// hostileCrowd is what the clients of a crowd do. Each does
// one thing and closes, most of them without goodbye.
var hostileCrowd = []struct {
	name string
	do   func(nc *net.TCPConn, in *bufio.Reader, i int) error
}{
	{"connect and close", func(nc *net.TCPConn, in *bufio.Reader, i int) error { return nil }},
	{"half a command", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, "*2\r\n$3\r\nGET\r\n$100\r\nk")
		return err
	}},
	{"half a large command, then a reset", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		nc.SetLinger(0)
		fmt.Fprintf(nc, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", 10<<20)
		nc.Write(make([]byte, 100<<10))
		return nil
	}},
	{"block, then vanish", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, "BLPOP never:pushed 0\r\n")
		return err
	}},
	{"block, then a reset", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		nc.SetLinger(0)
		return hostileExchange(nc, in, "PING\r\nBLPOP never:pushed 0\r\n", "+PONG")
	}},
	{"subscribe", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		return hostileExchange(nc, in, "SUBSCRIBE a\r\n", "*3", "$9", "subscribe", "$1", "a", ":1")
	}},
	{"pipeline", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		want := make([]string, 50)
		for i := range want {
			want[i] = ":"
		}
		return hostileExchange(nc, in, strings.Repeat("INCR counter\r\n", 50), want...)
	}},
	{"pipeline, unread", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, strings.Repeat("LRANGE list 0 -1\r\n", 200))
		return err
	}},
	{"lock and unlock", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		key := fmt.Sprintf("lock:%d", i)
		return hostileExchange(nc, in, "LOCK "+key+" 10\r\nUNLOCK "+key+"\r\n", ":", ":1")
	}},
	{"lock, then vanish", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, "LOCK contended 0.05\r\n")
		return err
	}},
	{"wait for a lock, then vanish", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, "LOCK waited:for 1\r\nLOCK waited:for 1 WAIT 60\r\n")
		return err
	}},
	{"within MULTI", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		return hostileExchange(nc, in, "MULTI\r\nINCR counter\r\n", "+OK", "+QUEUED")
	}},
	{"bad protocol", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		return hostileExchange(nc, in, "*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length")
	}},
	{"QUIT", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		return hostileExchange(nc, in, "QUIT\r\n", "+OK")
	}},
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

// 5,000 clients come and go, and leave nothing behind.
func TestHostileCrowd(t *testing.T) {
	redis := testredis.Start(t)
	p := proxytest.Start(t, redis.URL(), nil)
	first := proxytest.Dial(t, p.Addr)
	first.Expect("RPUSH list "+strings.Repeat("element ", 1000), ":1000\r\n")
	first.Close()
	come := func(clients, atOnce int) {
		t.Helper()
		var failures atomic.Int64
		var next atomic.Int64
		var crowd sync.WaitGroup
		for range atOnce {
			crowd.Go(func() {
				for i := next.Add(1) - 1; int(i) < clients; i = next.Add(1) - 1 {
					client := hostileCrowd[int(i)%len(hostileCrowd)]
					nc, err := net.Dial("tcp", p.Addr)
					if err == nil {
						nc.SetDeadline(time.Now().Add(20 * time.Second))
						err = client.do(nc.(*net.TCPConn), bufio.NewReader(nc), int(i))
						nc.Close()
					}
					if err != nil && failures.Add(1) < 10 {
						t.Errorf("%s: %v", client.name, err)
					}
				}
			})
		}
		crowd.Wait()
	}
	come(300, 150) // resources that the proxy makes once and keeps exist from now on
	goroutines, files, connections := hostileSettled(t, redis)

	watch := watchHostile(t, p.Addr)
	come(5000, 150)
	// 150 busy clients, the proxy and its Redis share a processor or two
	watch.end(t, 5*time.Second)

	// It keeps a few connections for its own requests, as many as it needed at once, and a few idle
	// lanes, served by two goroutines. Whether there was ever use for one is chance.
	const kept, lanes = 5, 8
	deadline := time.Now().Add(15 * time.Second)
	for runtime.NumGoroutine() > goroutines+2*lanes || proxytest.OpenFiles(t) > files+kept+lanes ||
		hostileConnections(t, redis) > connections+kept+lanes {
		if time.Now().After(deadline) {
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			t.Fatalf(
				"%d goroutines, %d files, %d upstream connections; before: %d, %d, %d",
				runtime.NumGoroutine(),
				proxytest.OpenFiles(t), hostileConnections(t, redis), goroutines, files,
				connections)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// hostileSettled waits until nothing has changed for a while, and returns the number of goroutines,
// open files and connections to redis.
func hostileSettled(t *testing.T, redis *testredis.Server) (goroutines, files, connections int) {
	t.Helper()
	since, deadline := time.Now(), time.Now().Add(15*time.Second)
	for time.Since(since) < 500*time.Millisecond {
		g, f, c := runtime.NumGoroutine(), proxytest.OpenFiles(t), hostileConnections(t, redis)
		if g != goroutines || f != files || c != connections {
			goroutines, files, connections, since = g, f, c, time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatal("goroutines, files or connections come and go without clients")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return goroutines, files, connections
}

// hostileConnections is how many clients redis has, this one included.
func hostileConnections(t *testing.T, redis *testredis.Server) int {
	t.Helper()
	info := hostileTalk(t, redis.Addr(), []byte("INFO clients\r\nQUIT\r\n"))
	var n int
	_, text, _ := strings.Cut(info, "connected_clients:")
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("INFO clients: %q", info)
	}
	return n
}

// Many clients with large unfinished requests take a bounded amount of memory. Requests that can be
// streamed are served when they are complete; of those that must be held whole, some are refused.
func TestHostileUnfinished(t *testing.T) {
	t.Parallel()
	bin, redis := proxytest.Binary(t), testredis.Start(t)
	for _, c := range []struct {
		name        string
		clients     int
		head, tail  string
		want        string // of each client's reply
		refusedWith string
	}{
		{"SET of 60 KB", 3000, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$61440\r\n" +
			strings.Repeat("x", 61000),
			strings.Repeat("x", 440) + "\r\n", "+OK\r\n", ""},
		{"LOCK of 900 KB", 300, "*3\r\n$4\r\nLOCK\r\n$921600\r\n" + strings.Repeat("x", 900_000),
			strings.Repeat("x", 21_600) + "\r\n$2\r\nno\r\n", "-ERR timeout is not a float",
			"-ERR too many clients are sending large requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startHostileProxy(t, bin, redis)
			most := p.memory("VmHWM")
			var left []*net.TCPConn
			for range c.clients {
				nc := hostileDial(t, p.addr)
				nc.SetDeadline(time.Now().Add(time.Minute))
				fmt.Fprint(nc, "PING\r\n")
				bufio.NewReaderSize(nc, 16).ReadString('\n')
				io.WriteString(nc, c.head) // fails if it has been refused
				left = append(left, nc)
			}
			watchHostile(t, p.addr).end(t, time.Second)
			if grown := p.memory("VmHWM") - most; grown > 280<<20 {
				t.Errorf("%d clients took %d MB", c.clients, grown>>20)
			} else {
				t.Logf("%d clients took %d MB", c.clients, grown>>20)
			}
			served, refused := 0, 0
			for i, nc := range left {
				io.WriteString(nc, c.tail)
				got, err := bufio.NewReader(nc).ReadString('\n')
				switch {
				case strings.HasPrefix(got, c.want):
					served++
				case c.refusedWith != "" && (strings.HasPrefix(got, c.refusedWith) || got == "" &&
					err != nil):
					refused++
				default:
					t.Fatalf("client %d is answered %q, %v", i, got, err)
				}
				nc.Close()
			}
			t.Logf("%d served, %d refused", served, refused)
			if served < 50 {
				t.Errorf("%d served, %d refused", served, refused)
			}
		})
	}
}
