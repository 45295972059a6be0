package cluster_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"lockproxy/internal/cluster"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
)

// A node that does not know the user refuses its requests, and runs none as another user.
func TestLoginThatANodeRefuses(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	c.Nodes[0].Ask("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all")
	one, two := keyAt(t, c, 0, "u"), keyAt(t, c, 1, "u")
	u, err := upstream.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 { // until the default node is the one that knows the user
		nc, err := u.Dial(t.Context(), upstream.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		k := &client{t, nc.(*cluster.Conn), bufio.NewReader(nc)}
		if got := k.ask("AUTH ann pw"); strings.HasPrefix(got, "-WRONGPASS") {
			continue
		}
		k.expect("SET "+one+" 1", ok)
		want := "-UPSTREAM node " + c.Nodes[1].Addr() + " refused the login"
		if got := k.ask("SET " + two + " 1"); !strings.HasPrefix(got, want) {
			t.Errorf("SET at the other node: %q", got)
		}
		k.expect("GET "+one, "$1\r\n1\r\n")
		if got := c.Nodes[1].Ask("GET", two); got != "$-1" {
			t.Errorf("it was run as another user: %q", got)
		}
		return
	}
	t.Fatal("no connection begins at the node that knows the user")
}

// Close leaves no goroutine behind, whatever the Conn waits for.
func TestCloseEndsEverything(t *testing.T) {
	c := six(t)
	cl := cluster.New(c.Addrs())
	openAt(t, cl).expect("PING", "+PONG\r\n")
	before := runtime.NumGoroutine()
	for range 20 {
		k := openAt(t, cl)
		k.send("MGET a b c d e", "BLPOP nothing 0", "GET a")
		k.reply()
		read := make(chan error, 1)
		go func() {
			_, err := k.nc.Read(make([]byte, 1))
			read <- err
		}()
		k.nc.Close()
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read after Close: %v", err)
		}
		if _, err := k.nc.Write([]byte("PING\r\n")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Close: %v", err)
		}
	}
	testwait.Until(t, fmt.Sprintf("no more than %d goroutines", before),
		func() bool { return runtime.NumGoroutine() <= before })
}

// A client that closes its side gets its replies, and then the end. Blocking commands are given up.
func TestCloseWrite(t *testing.T) {
	k := open(t, six(t))
	k.send("SET a 1", "GET b", "MGET a b", "GET a", "BLPOP nothing 0")
	k.nc.CloseWrite()
	k.replies(ok)
	k.reply()
	k.reply()
	k.replies("$1\r\n1\r\n")
	if got, err := k.tryReply(); got != "" || err == nil ||
		errors.Is(err, net.ErrClosed) {
		t.Errorf("behind the last reply: %q, %v", got, err)
	}
	k = open(t, six(t))
	k.expect("SET a 1", ok)
	k.send("QUIT")
	k.replies(ok)
	if _, err := k.tryReply(); !errors.Is(err, io.EOF) {
		t.Errorf("behind QUIT: %v", err)
	}
}

// QUIT waits until earlier requests are answered. What is behind it is not run.
func TestQuitBehindABlockingCommand(t *testing.T) {
	k := open(t, six(t))
	k.expect("SET a 1", ok)
	k.send("BLPOP nothing 0.05", "PING", "QUIT "+strings.Repeat("v", 1<<21), "SET a 2", "PING")
	k.replies("*-1\r\n", "+PONG\r\n", ok)
	if got, err := k.tryReply(); !errors.Is(err, io.EOF) {
		t.Errorf("behind QUIT: %q, %v", got, err)
	}
	open(t, six(t)).expect("GET a", "$1\r\n1\r\n")
}

// When a client closes its side, what waits behind a blocking command is not run, as with Redis.
func TestCloseWriteBehindABlockingCommand(t *testing.T) {
	k := open(t, six(t))
	k.send("SET open 1", "RESET", "SET open 2")
	k.nc.CloseWrite()
	k.replies(ok, "+RESET\r\n", ok)
	k = open(t, six(t))
	k.send("BLPOP nothing 0", "RESET", "SET closed 1")
	k.nc.CloseWrite()
	if got, err := k.tryReply(); !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", got, err)
	}
	open(t, six(t)).expect("GET closed", "$-1\r\n")
}

// A login that all nodes refuse changes nothing, also for a node that is dialed meanwhile.
func TestRefusedLoginIsTakenBack(t *testing.T) {
	c := six(t)
	u, err := upstream.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		nc, err := u.Dial(t.Context(), upstream.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		k := &client{t, nc.(*cluster.Conn), bufio.NewReader(nc)}
		k.send("AUTH nobody x", "GET nothing1", "GET nothing2", "GET nothing3")
		if got := k.reply(); !strings.HasPrefix(got, "-WRONGPASS") {
			t.Errorf("AUTH: %q", got)
		}
		for range 3 {
			if got := k.reply(); got != "$-1\r\n" && !strings.Contains(got, "refused the login") {
				t.Errorf("GET: %q", got)
			}
		}
		for _, key := range []string{"nothing1", "nothing2", "nothing3"} {
			k.expect("GET "+key, "$-1\r\n")
		}
	}
}
