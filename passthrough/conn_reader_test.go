package passthrough

import (
	"fmt"
	"io"
	"testing"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
)

// reluctant consumes bytes, and then wants no more until it has waited.
type reluctant struct {
	t     *testing.T
	far   io.Writer
	full  bool // only the reader
	waits chan bool

	behind  io.Writer // to another connection of the loop
	learned chan bool // the loop has learned of what came there
}

// Ready and Resume are for the other connection.
func (c *reluctant) Ready(*eventloop.Iteration, bool) eventloop.Next {
	c.learned <- true
	return eventloop.Stay
}

func (c *reluctant) Resume() {}

func (c *reluctant) Consume(data []byte, it *eventloop.Iteration) error {
	if c.full {
		c.t.Error("more is read than the consumer wants")
	}
	c.full = true
	if it == nil && string(data) == "1" {
		io.WriteString(c.far, "2")
		io.WriteString(c.behind, "3") // once the loop learns of that, it has learned of this
		<-c.learned
	}
	return nil
}

func (c *reluctant) MustWait() bool { return c.full }

func (c *reluctant) Wait() {
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
	otherNear, otherFar := tcpPair(t)
	c := &reluctant{t: t, far: far, waits: make(chan bool, 10), behind: otherFar,
		learned: make(chan bool, 10)}
	if !loops.NewRegistration(c, socket.New(otherNear).Raw()).Park() {
		t.Fatal("the loop does not watch the other connection")
	}
	r := &connReader{}
	r.init(near, c, minBuf, loops)
	r.Reg.Register() // the loop learns of what comes before the reader parks
	go r.Resume()    // ends with near, which the test waits for
	io.WriteString(far, "1")
	for i := range 2 {
		testwait.For(t, fmt.Sprintf("the reader waits behind read %d", i+1), c.waits)
	}
	r.Close()
	for range c.waits {
	}
}
