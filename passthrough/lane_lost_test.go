package passthrough

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/testwait"
)

// When a lane is lost, each client is told of each request: the reply, that its outcome is unknown,
// or that it was never sent. What was never sent never reached the upstream; and all of them go on.
func TestLaneLost(t *testing.T) {
	unsentSeen := 0
	for round := 0; round < 6 || unsentSeen == 0 && round < 30; round++ {
		s := newScripted(t, 1)
		clients, lane := s.threeOnALane(t)
		lane.(*net.TCPConn).SetReadBuffer(4 << 10)
		take := rand.IntN(40)
		received := map[string]bool{}
		done := make(chan struct{})
		go func() { // ends when it has taken enough, or closed
			defer close(done)
			n := 0
			eachRequest(lane, func(words []string) bool {
				if words[0] == "PING" {
					// it ends, though the clients may have begun to avoid it
					lane.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
					lane.Write([]byte("+PONG\r\n"))
					return true
				}
				n++
				received[words[1]] = true
				if n%2 == 0 {
					fmt.Fprintf(lane, "+%s\r\n+%s\r\n", "odd", words[1])
				}
				return n < take
			})
			lane.Close()
		}()
		var asking sync.WaitGroup
		for i, c := range clients {
			if got := c.line(t); got != "+PONG" {
				t.Fatal(got)
			}
			asking.Go(func() {
				for j := range 60 {
					set := []string{"SET", fmt.Sprintf("%d-%d", i, j), strings.Repeat("x", 60<<10)}
					if rand.IntN(2) == 0 && c.tryAsk(set...) {
						continue
					}
					c.ask(t, set...)
					if rand.IntN(2) == 0 {
						c.Flush(nil)
					}
				}
				c.Flush(nil)
			})
		}
		stop := s.serve(func(later net.Conn) {
			eachRequest(later, func([]string) bool {
				fmt.Fprintf(later, "+later\r\n")
				return true
			})
			later.Close()
		})
		asking.Wait()
		<-done
		for i, c := range clients {
			for j := range 60 {
				switch got := c.line(t); {
				case got == "-UNSENT":
					unsentSeen++
					if received[fmt.Sprintf("%d-%d", i, j)] {
						t.Errorf("round %d: %d-%d was sent, its client is told otherwise", round, i,
							j)
					}
				case got == "-SENT", got == "+later", got == "+odd":
				case got == fmt.Sprintf("+%d-%d", i, j):
					if !received[got[1:]] {
						t.Errorf("round %d: %s was answered before it was asked", round, got)
					}
				default:
					t.Fatalf("round %d: %d-%d is answered %q", round, i, j, got)
				}
			}
			c.ask(t, "after")
			c.Flush(nil)
			if got := c.line(t); got != "+later" {
				t.Errorf("round %d: afterwards %q", round, got)
			}
			c.End(AtOnce)
			c.Wait()
		}
		stop()
	}
	if unsentSeen == 0 {
		t.Error("no round has lost a request before it was sent: the test shows nothing of these")
	}
}

// A session that waits for room on a lane, whose upstream takes nothing, ends when it is told to.
func TestCloseWhileWaitingForRoomOnALane(t *testing.T) {
	s := newScripted(t, 1)
	near, far := net.Pipe() // takes nothing
	defer far.Close()
	c := s.client(t)
	c.lanes.lane, c.c.route = newLane(poolKey{Identity: c.c.pending.Identity}, near, &Pool{}), byLane
	c.lanes.lane.users = 1
	waiting := make(chan struct{})
	go func() { // ends when the Pipe is closed; the test waits for it
		defer close(waiting)
		for range 2 * maxGathered / bufSize {
			c.Relay(Request{Raw: make([]byte, bufSize)}, nil)
			c.Flush(nil)
		}
	}()
	testwait.Blocked(t, "passthrough.TestCloseWhileWaitingForRoomOnALane.func1")
	select {
	case <-waiting:
		t.Fatal("there was room")
	default:
	}
	c.End(AtOnce)
	testwait.For(t, "the end of waiting", waiting)
	c.lanes.lane = nil // no lane of s.lanes
	c.Wait()
}

// A client can go on at its home after a lane has sent, right behind a reply, something that is
// none.
func TestLaneThatSendsNoReply(t *testing.T) {
	s := newScripted(t, 1)
	clients, lane := s.threeOnALane(t)
	io.WriteString(lane, "+PONG\r\n+PONG\r\n+PONG\r\n")
	for _, c := range clients {
		defer c.Wait()
		defer c.End(AtOnce)
		c.line(t)
	}
	c := clients[0]
	c.Route(context.Background(), Shared, nil)
	answers := c.Do(nil, []byte(probing), []byte(probing))
	c.Flush(nil)
	io.WriteString(lane, "+PONG\r\nno reply\r\n")
	if _, err := answers[0].Raw(); err != nil {
		t.Error(err)
	}
	if _, err := answers[1].Raw(); err == nil {
		t.Error("what is no reply is taken for one")
	}
	if err := c.Route(context.Background(), Home, nil); err != nil {
		t.Fatal(err)
	}
	c.Relay(Request{Raw: []byte(probing)}, nil) // which the upstream answers
	c.Flush(nil)
	if got := c.line(t); got != "+PONG" {
		t.Errorf("at home: %q", got)
	}
}
