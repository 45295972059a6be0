//go:build memory

package relay_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testhostile"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
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
	watch := p.watch()
	eachHostile(t, func(request []byte) {
		got, want := hostileTalk(t, p.addr, request), hostileTalk(t, p.redis.Addr(), request)
		if bytes.HasPrefix(request, []byte("\x16\x03")) { // Redis waits for the end of the line
			want = "-ERR Protocol error: this port does not speak TLS\r\n"
		}
		// The proxy knows LOCK, Redis doesn't.
		want = hostileLockArity.ReplaceAllString(want,
			"ERR wrong number of arguments for 'lock' command; see LOCK HELP")
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
	watch.end(t)
	p.expectMemoryBack(before)
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
		if round == 0 {
			p.rests() // once they have been read
		}
		for _, nc := range left {
			nc.Close()
		}
	}
	p.expectMemoryBack(before)
}

// A long pipeline, in packets of one byte each.
func hostileByteByByte(t *testing.T, p *hostileProxy) {
	before := p.memory("VmRSS")
	var in []byte
	for i := range 300 {
		in = wire.Append(in, "ECHO", strconv.Itoa(i), "one too many")
		in = wire.Append(in, "ECHO", strconv.Itoa(i))
	}
	watch := p.watch()
	got := hostileTalk(t, p.addr, hostileBytes(in)...)
	watch.end(t)
	if want := hostileTalk(t, p.redis.Addr(), in); got != want ||
		strings.Count(got, "\r\n") != 900 {
		t.Errorf("%d bytes of answers, Redis gives %d", len(got), len(want))
	}
	p.expectMemoryBack(before)
}

// The time for 200,000 arguments in small packets is in proportion to their number.
func hostileManyArguments(t *testing.T, p *hostileProxy) {
	before := p.memory("VmRSS")
	const n = 200_000
	in := append(fmt.Appendf(nil, "*%d\r\n$3\r\nDEL\r\n", n),
		bytes.Repeat([]byte("$8\r\nno such \r\n"), n-1)...)
	watch := p.watch()
	used := p.cpu()
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
	if used = p.cpu() - used; used > 3*time.Second {
		t.Errorf("took %v of a processor", used)
	}
	watch.end(t)
	nc.Close()
	p.expectMemoryBack(before)
}

// One command of 128 MB leaves no memory behind.
func hostileHugeCommand(t *testing.T, p *hostileProxy) {
	before, most := p.memory("VmRSS"), p.memory("VmHWM")
	const size = 128 << 20
	watch := p.watch()
	nc := hostileDial(t, p.addr)
	fmt.Fprintf(nc, "*2\r\n$3\r\nGET\r\n$%d\r\n", size)
	if err := hostileStream(nc, size); err != nil {
		t.Fatal(err)
	}
	io.WriteString(nc, "\r\n")
	if line, err := bufio.NewReader(nc).ReadString('\n'); line != "$-1\r\n" {
		t.Errorf("answered %q, %v", line, err)
	}
	watch.end(t)
	if grown := p.memory("VmHWM") - most; grown > 64<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	p.expectMemoryBack(before)
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

// A client asks for 400 MB and reads none of it. What it is sent before it has a home, where Redis
// keeps the rest, waits in memory until a file takes it.
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
	before, most := p.memory("VmRSS"), p.memory("VmHWM")
	deaf := hostileDial(t, p.addr)
	io.WriteString(deaf, strings.Repeat("GET big\r\n", 400))
	watch := p.watch()
	watch.serves(t, 5000)
	watch.end(t)
	if grown := p.memory("VmHWM") - most; grown > 192<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	// It was not cut off: its replies are still there.
	if n, err := io.CopyN(io.Discard, deaf, 400*(1<<20+12)); err != nil {
		t.Errorf("when it reads at last, it gets %d bytes: %v", n, err)
	}
	deaf.Close()
	p.expectMemoryBack(before)
}

// A request of which each byte comes when those before it have been read is valid, and many that
// have not come yet cost little.
func hostileSlow(t *testing.T, p *hostileProxy) {
	const many, each = 1000, 24 << 10
	before := p.memory("VmRSS")
	for range many {
		nc := hostileDial(t, p.addr)
		io.WriteString(nc, "*2\r\n$4\r\nEC")
	}
	// What their coming has left behind takes the runtime some seconds to return.
	var grown int64
	testwait.Until(t, "clients in the middle of a request cost little", func() bool {
		grown = p.memory("VmRSS") - before
		return grown <= many*each
	})
	t.Logf("%d clients in the middle of a request cost %d bytes each", many, grown/many)
	nc := hostileDial(t, p.addr)
	for _, b := range hostileBytes([]byte("*2\r\n$4\r\nECHO\r\n$4\r\nslow\r\nLOCK slow 600\r\n")) {
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		p.hasRead(nc)
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
	const size = 256 << 20
	before, most := p.memory("VmRSS"), p.memory("VmHWM")
	watch := p.watch()
	hostileRound(t, p.addr, size)
	watch.end(t)
	if grown := p.memory("VmHWM") - most; grown > 64<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	p.expectMemoryBack(before)
}

// hostileRound sets a value, gets it and deletes it.
func hostileRound(t *testing.T, addr string, size int) {
	nc := hostileDial(t, addr)
	defer nc.Close()
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
