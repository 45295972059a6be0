package passthrough

import (
	"io"
	"testing"
	"time"

	"lockproxy/internal/resp"
)

// A session that has been alone on its lane sends its request itself; others' that come before the answer wait for the writer, who
// takes them together. The lane's goroutines don't run here, so who sends what is seen.
func TestLaneAlone(t *testing.T) {
	near, far := tcpPair(t)
	l := newLane(laneKind{}, near)
	p, q := &Pipe{}, &Pipe{}
	ping := resp.AppendCommand(nil, "PING")
	arrives := func() bool {
		far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := io.ReadFull(far, make([]byte, len(ping)))
		return err == nil
	}
	woken := func() bool {
		select {
		case <-l.wake:
			return true
		default:
			return false
		}
	}
	byWriter := func() { l.mu.Lock(); out := l.takeLocked(); l.mu.Unlock(); l.send(out) }
	answered := func() {
		for {
			if _, ok := l.runs.pop(); !ok {
				break
			}
		}
		l.heard()
	}

	for i := range aloneBefore {
		l.submit(p, ping, 1)
		if !woken() {
			t.Fatalf("request %d: the writer isn't woken", i)
		}
		byWriter()
		if !arrives() {
			t.Fatalf("request %d doesn't arrive", i)
		}
		answered()
	}
	l.submit(p, ping, 1)
	if woken() || !arrives() {
		t.Fatal("alone, it leaves its request to the writer")
	}
	l.submit(q, ping, 1)
	l.submit(p, ping, 1)
	if !woken() || arrives() {
		t.Fatal("while an answer is due, requests are sent one by one")
	}
	byWriter()
	if !arrives() || !arrives() {
		t.Fatal("the writer doesn't send what was gathered")
	}
	answered()
	l.submit(p, ping, 1)
	if !woken() || arrives() {
		t.Fatal("right after requests were gathered, one isn't")
	}
}

// What is gathered while a session sends its request itself is the writer's: it isn't forgotten.
func TestLaneAloneWakesWriter(t *testing.T) {
	near, _ := tcpPair(t)
	l := newLane(laneKind{}, near)
	l.alone = aloneBefore
	l.submits, l.gathered = 1, resp.AppendCommand(nil, "PING")
	l.mu.Lock()
	out := l.takeLocked()
	l.mu.Unlock()
	l.submit(&Pipe{}, resp.AppendCommand(nil, "PING"), 1) // while out is being written
	<-l.wake
	l.send(out)
	select {
	case <-l.wake:
	default:
		t.Fatal("the writer, who found the lane busy, isn't woken again")
	}
}
