package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// A node that is no master any more and owes replies is sent a PING, except within a transaction:
// there PING would be queued, and EXEC would answer it.
func TestNoPingWithinTransaction(t *testing.T) {
	server := miniredis.RunT(t)
	cl := New([]string{server.Addr()})
	c, err := cl.Open(context.Background(), Options{
		Dial: func(ctx context.Context, addr string, _ [][]string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
		Failure: func(addr string, sent bool, err error) []byte {
			return resp.AppendError(nil, err.Error())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(testwait.Deadline())
	in := bufio.NewReader(c)
	ask := func(line string, replies int) (got string) {
		c.Write(wire.Append(nil, strings.Fields(line)...))
		for range replies {
			text, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %q, %v", line, got+text, err)
			}
			got += text
		}
		return got
	}
	ask("MULTI", 1)
	// PUBLISH has no key: the transaction stays at this node
	if got := ask("PUBLISH channel text", 1); got != "+QUEUED\r\n" {
		t.Fatalf("PUBLISH: %q", got)
	}
	cl.slots.Store(mapOf(1, func(int) int { return 0 })) // another node has all slots
	c.mu.Lock()
	c.nodes.byAddr[server.Addr()].state.pending = true // a reply is awaited
	c.mu.Unlock()
	c.mapChanged()
	if got := ask("EXEC", 2); got != "*1\r\n:0\r\n" {
		t.Errorf("EXEC: %q, want the reply to PUBLISH alone", got)
	}
}

// A replica that is slow to do what all nodes are asked is waited for, while maps say again that it
// is a replica. One that was a master when it was asked is not.
func TestSlowReplicaIsWaitedFor(t *testing.T) {
	for _, demoted := range []bool{false, true} {
		p := newPuppets(t, "a:1", "r:1")
		p.conn.SetClosing(time.Nanosecond)
		m := allAt("a:1")
		m.replicas = []string{"r:1"}
		if p.cl.update(m, 1, time.Now()); demoted {
			p.cl.update(allAt("a:1").with(0, "r:1"), 1, time.Now())
		}
		p.send("SCRIPT LOAD x")
		a, r := p.at("a:1"), p.at("r:1")
		a.hears("SCRIPT LOAD x")
		r.hears("SCRIPT LOAD x")
		a.says("+loaded")
		p.cl.update(m, 1, time.Now())
		if demoted {
			p.replies("-UPSTREAM a part of the request was run by its node, but another node could " +
				"not be reached: the outcome is unknown in part (r:1: sent true)")
			continue
		}
		p.afterDelays(1)
		p.cl.update(m, 1, time.Now())
		p.afterDelays(1)
		r.says("+loaded")
		p.replies("+loaded")
	}
}

// A node that comes back and takes itself for a master is not believed, unless no node has known a
// newer epoch for a while.
func TestOldEpochIsNotBelieved(t *testing.T) {
	cl := New([]string{"a:1"})
	began := time.Now()
	for i, step := range []struct {
		addr    string
		epoch   int64
		after   time.Duration
		learned bool
	}{
		{"old:1", 3, 0, true},
		{"new:1", 4, time.Second, true},
		{"old:1", 3, 2 * time.Second, false},
		{"new:1", 4, 5 * time.Second, true},
		{"old:1", 3, 14 * time.Second, false},
		{"other:1", 1, 16 * time.Second, true}, // another cluster, or one that began again
		{"old:1", 3, 17 * time.Second, true},
	} {
		got := cl.update(allAt(step.addr), step.epoch, began.Add(step.after))
		if got != step.learned {
			t.Errorf("step %d: learned %v from %s", i, got, step.addr)
		}
		if got := cl.slots.Load().master(0); (got == step.addr) != step.learned {
			t.Errorf("step %d: %s serves the slots", i, got)
		}
	}
}

// A Conn asks for the map with the login of Follow as long as that works, since the client may lack
// the right.
func TestRefreshByTheLoginOfFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, asked, refused := New([]string{"a:1"}), make(chan string), false
		dial := func(_ context.Context, addr string, setup [][]string) (net.Conn, error) {
			by := "client"
			if len(setup) > 0 && setup[0][1] == "own" {
				by = "own"
			}
			asked <- by
			if by == "client" || refused {
				return nil, errors.New("NOPERM")
			}
			here, there := net.Pipe()
			go func() { // ends with the connection
				in := bufio.NewReader(there)
				wire.ReadCommand(in)
				wire.ReadCommand(in)
				io.WriteString(there, "$0\r\n\r\n*1\r\n*3\r\n:0\r\n:16383\r\n"+
					"*2\r\n$1\r\na\r\n:1\r\n")
				there.Close()
			}()
			return here, nil
		}
		c := newConn(cl, Options{Dial: dial, Setup: [][]string{{"AUTH", "poor", "pw"}}})
		defer c.Wait()
		defer c.Close()
		refresh := func(want string) {
			t.Helper()
			c.mu.Lock()
			c.refreshMap()
			c.mu.Unlock()
			if got := <-asked; got != want {
				t.Errorf("%s asks instead of %s", got, want)
			}
			synctest.Wait()
		}
		refresh("client")
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan bool)
		go func() {
			cl.Follow(ctx, dial, [][]string{{"AUTH", "own", "pw"}}, func(error) {})
			close(followed)
		}()
		<-asked
		synctest.Wait()
		refresh("own")
		refused = true
		<-asked // Follow's, a second later
		synctest.Wait()
		refresh("client")
		cancel()
		<-followed
	})
}
