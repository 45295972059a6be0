//go:build memory

package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// A client that asks for much on a lane and doesn't read costs neither memory nor the others' time,
// and gets everything in the end.
func TestLaneSlowReader(t *testing.T) {
	bin := proxytest.Binary(t)
	redis := testredis.Start(t)
	p := startHostileProxy(t, bin, redis)
	admin := proxytest.Dial(t, redis.Addr())
	const keys, size, gets = 5, 100 << 10, 900
	value := func(k int) string {
		return strings.Repeat(fmt.Sprintf("%04d:%04d;", k, k*7), size/10)
	}
	for k := range keys {
		admin.Expect(fmt.Sprintf("SET big:%d %s", k, value(k)), "+OK\r\n")
	}
	slow := hostileDial(t, p.addr)
	in := bufio.NewReaderSize(slow, 1<<20)
	if err := hostileExchange(slow, in, "PING\r\nPING\r\n", "+PONG", "+PONG"); err != nil {
		t.Fatal(err)
	}
	before, most := p.memory("VmRSS"), p.memory("VmHWM")

	go func() { // ends when all is sent or the connection closes
		for i := range gets {
			fmt.Fprintf(slow, "GET big:%d\r\n", i%keys)
		}
	}()
	watch := p.watch()
	watch.serves(t, 5000) // a blocked lane would serve none
	watch.end(t)
	if grown := p.memory("VmHWM") - most; grown > 30<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	slow.SetDeadline(testwait.Deadline())
	got := make([]byte, size+2)
	for i := range gets {
		if line, err := in.ReadString('\n'); line != fmt.Sprintf("$%d\r\n", size/10*10) {
			t.Fatalf("%d: %q, %v", i, line, err)
		}
		if _, err := io.ReadFull(in, got[:size/10*10+2]); err != nil ||
			string(got[:size/10*10]) != value(i%keys) {
			t.Fatalf("%d: not the value, %v", i, err)
		}
	}
	if err := hostileExchange(slow, in, "PING\r\n", "+PONG"); err != nil {
		t.Error(err)
	}
	p.expectMemoryBack(before)
}
