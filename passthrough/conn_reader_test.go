package passthrough

import (
	"io"
	"testing"
	"time"

	"lockproxy/internal/eventloop"
)

// reluctant consumes bytes, and then wants no more until it has waited.
type reluctant struct {
	t     *testing.T
	far   io.Writer
	full  bool // only the reader
	waits chan bool
}

func (c *reluctant) consume(data []byte, it *eventloop.Iteration) error {
	if c.full {
		c.t.Error("more is read than the consumer wants")
	}
	c.full = true
	if it == nil && string(data) == "1" {
		io.WriteString(c.far, "2")
		time.Sleep(20 * time.Millisecond) // the loop learns of it
	}
	return nil
}

func (c *reluctant) mustWait() bool { return c.full }

func (c *reluctant) wait() {
	if c.full {
		c.full = false
		c.waits <- true
	}
}

func (c *reluctant) connEnded(error) { close(c.waits) }

// A connReader waits for its consumer before it reads on, also if something came in the moment in
// which it left the connection to the loop.
func TestReaderWaitsBeforeItReads(t *testing.T) {
	loops, err := eventloop.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loops.Stop)
	near, far := tcpPair(t)
	c := &reluctant{t: t, far: far, waits: make(chan bool, 10)}
	r := &connReader{}
	r.init(near, c, minBuf, loops)
	r.reg.Register() // the loop learns of what comes before the reader parks
	go r.Resume()    // ends with near, which the test waits for
	io.WriteString(far, "1")
	for i := range 2 {
		select {
		case <-c.waits:
		case <-time.After(5 * time.Second):
			t.Fatalf("behind read %d the reader does not wait", i+1)
		}
	}
	r.close()
	for range c.waits {
	}
}
