package proxy

import (
	"net"
	"testing"
	"time"

	"lockproxy/lockcmd/syntax"
)

type sink struct{ net.Conn }

func (sink) Write(b []byte) (int, error) { return len(b), nil }

type counting struct{ relayed, other int }

func (counting) LockWaited(time.Duration, bool) {}
func (counting) LockHeld(time.Duration)         {}

func (c *counting) CommandTook(kind Kind, d time.Duration) {
	if kind == Relayed && d >= 0 && d < time.Minute {
		c.relayed++
	} else {
		c.other++
	}
}

// newTestClient is a client that reads everything it is sent.
func newTestClient(observer Observer) *client {
	return &client{Conn: sink{}, meter: meter{observer: observer, origin: time.Now()}}
}

// request is what a session does with its meter for one relayed request.
func request(m *client, reply []byte) {
	m.received(40)
	m.count(Relayed)
	m.publish()
	m.Write(reply)
}

// To count a request costs no memory.
func TestMeterCountsWithoutMemory(t *testing.T) {
	seen := &counting{}
	m := newTestClient(seen)
	reply := []byte("+OK\r\n")
	if n := testing.AllocsPerRun(1000, func() { request(m, reply) }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
	if got := m.commands[Relayed].Load(); got != 1001 { // AllocsPerRun warms up with one
		t.Errorf("counted %d", got)
	}
	if m.in.Load() != 1001*40 || m.out.Load() != 1001*5 {
		t.Errorf("%d bytes in, %d out", m.in.Load(), m.out.Load())
	}
	if want := 1001 / sampleEvery; seen.relayed != want || seen.other != 0 {
		t.Errorf("%+v samples, want %d", seen, want)
	}
}

// The time of a lock command isn't taken for a relayed request's.
func TestMeterSamplesOnlyRelayed(t *testing.T) {
	seen := &counting{}
	m := newTestClient(seen)
	for range 10 * sampleEvery {
		m.received(40)
		m.count(firstLock)
		m.Write([]byte(":1\r\n"))
	}
	if *seen != (counting{}) {
		t.Errorf("%+v", seen)
	}
}

func TestKinds(t *testing.T) {
	if Kinds > maxKinds {
		t.Fatalf("%d kinds don't fit", Kinds)
	}
	seen := map[string]bool{}
	for kind := range Kinds {
		seen[Kind(kind).String()] = true
	}
	if len(seen) != Kinds || !seen["relay"] || !seen["lockscan"] {
		t.Errorf("%v", seen)
	}
	for i := range syntax.Specs {
		spec := &syntax.Specs[i]
		if kind := lookup([]byte(spec.Name)).kind; kind.String() != spec.Name {
			t.Errorf("%s is counted as %v", spec.Name, kind)
		}
	}
}

func BenchmarkMeter(b *testing.B) {
	m := newTestClient(&counting{})
	reply := []byte("+OK\r\n")
	b.ReportAllocs()
	for b.Loop() {
		request(m, reply)
	}
}
