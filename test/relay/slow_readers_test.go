//go:build memory

package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
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
	watch := p.watch()
	time.Sleep(500 * time.Millisecond)
	alone := watch.end(t, 5*time.Second)
	before, most := p.memory("VmRSS"), p.memory("VmHWM")

	go func() { // ends when all is sent or the connection closes
		for i := range gets {
			fmt.Fprintf(slow, "GET big:%d\r\n", i%keys)
		}
	}()
	others := 0.0
	// the machine can be busy; a blocked lane would serve none
	for try := 0; try < 3 && others < alone/3; try++ {
		watch = p.watch()
		time.Sleep(2 * time.Second)
		others = watch.end(t, 2*time.Second)
	}
	if grown := p.memory("VmHWM") - most; grown > 30<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
	t.Logf("%.0f requests/s alone, %.0f for others; memory %d MB", alone, others,
		p.memory("VmRSS")>>20)
	if others < alone/3 {
		t.Errorf("others get %.0f requests/s, %.0f alone", others, alone)
	}
	slow.SetDeadline(time.Now().Add(30 * time.Second))
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
