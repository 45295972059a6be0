package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// The newest configuration wins, whichever Sentinel reports it first. Only Sentinels that were set
// up again lead back to a lower epoch.
func TestSentinelsElect(t *testing.T) {
	s := newSentinels("g", []string{"a", "b", "c"})
	for i, step := range []struct {
		from   string
		said   vote
		moves  bool
		master string
	}{
		{"a", vote{"one", 3}, true, "one"},
		{"b", vote{"one", 3}, false, "one"},
		{"c", vote{"one", 3}, false, "one"},
		{"b", vote{"two", 4}, true, "two"},  // it was the first to hear of a failover
		{"a", vote{"one", 3}, false, "two"}, // these two have not yet
		{"c", vote{"one", 3}, false, "two"},
		{"c", vote{"old", 1}, false, "two"}, // it has lost what it knew
		{"a", vote{"old", 1}, false, "two"}, // so has this one, but b has not
		{"c", vote{"two", 4}, false, "two"},
		{"a", vote{"two", 5}, false, "two"},   // a failover back, of which the middle was missed
		{"b", vote{"three", 0}, false, "two"}, // set up again
		{"b", vote{"three", 0}, false, "two"}, // one Sentinel counts once
		{"c", vote{"three", 0}, false, "two"}, // a still says what is newer
		{"a", vote{"one", 0}, false, "two"},
		{"c", vote{"three", 0}, true, "three"}, // now none says it, and most agree
		{"a", vote{"two", 5}, false, "three"},  // it has been left out of that
		{"a", vote{"four", 6}, true, "four"},
		{"a", vote{"five", 6}, false, "four"}, // again, with the same epoch
		{"b", vote{"five", 6}, false, "four"},
		{"c", vote{"five", 6}, false, "four"}, // b and c have not said anything else for 6
		{"b", vote{"six", 6}, false, "four"},
		{"a", vote{"six", 6}, true, "six"}, // now most have said something else for it before
	} {
		if moves := s.electLocked(step.from, step.said); moves != step.moves ||
			s.master.addr != step.master {
			t.Errorf("step %d: %v, master %v; want %v, %s", i, moves, s.master, step.moves,
				step.master)
		}
	}
}

// Whatever order three Sentinels report some failovers in, and whichever of them loses meanwhile
// what it knew, the master is that of the highest epoch which one of them has reported.
func TestSentinelsElectInAnyOrder(t *testing.T) {
	const last = 3 // epochs are 1 to last, and 0 for a Sentinel that has forgotten
	names := []string{"a", "b", "c"}
	said := func(epoch int) vote { return vote{string(rune('A' + epoch%2)), int64(epoch)} }
	var orders, moves int
	var try func(s *sentinels, at [3]int, highest, forgets, left int)
	try = func(s *sentinels, at [3]int, highest, forgets, left int) {
		if left == 0 || t.Failed() {
			orders++
			return
		}
		for i, from := range names {
			for to := 0; to <= last; to++ {
				forgot := to == 0 && at[i] > 0
				if to < at[i] && !forgot || forgot && forgets == 0 {
					continue
				}
				next := newSentinels("g", names)
				next.master, next.overruled = s.master, s.overruled
				next.votes, next.best = maps.Clone(s.votes), maps.Clone(s.best)
				if next.electLocked(from, said(to)) {
					moves++
				}
				now, top, rest := at, max(highest, to), forgets
				if now[i] = to; forgot {
					rest--
				}
				if next.master != said(top) {
					t.Errorf("%s says %d, then the master is %v; the highest epoch was %d",
						from, to, next.master, top)
				}
				try(next, now, top, rest, left-1)
			}
		}
	}
	try(newSentinels("g", names), [3]int{1, 1, 1}, 0, 1, 5)
	if orders < 10_000 || moves < 1000 {
		t.Errorf("only %d orders, %d changes of the master", orders, moves)
	}
}

// A connection ends when the master does, and one that was being made to the old master is not
// used.
func TestConnectionsEndWithTheirMaster(t *testing.T) {
	s := newSentinels("g", []string{"a"})
	order := []string{}
	say := func(addr string, epoch int64) {
		s.record("a", vote{addr, epoch},
			func(old, master string) { order = append(order, old+">"+master) })
	}
	say("one", 1)
	near, far := net.Pipe()
	defer far.Close()
	kept, err := s.track(near, "one")
	if err != nil {
		t.Fatal(err)
	}
	say("one", 1)
	say("two", 2)
	if _, err := kept.Write([]byte("x")); !errors.Is(err, net.ErrClosed) && err == nil {
		t.Error("the connection to the old master is open")
	}
	if _, err := s.track(near, "one"); err == nil {
		t.Error("a connection to the old master is used")
	}
	if len(s.conns) != 0 {
		t.Errorf("%d connections are kept in mind", len(s.conns))
	}
	new, other := net.Pipe()
	defer other.Close()
	if _, err := s.track(new, "two"); err != nil {
		t.Fatal(err)
	}
	if s.closeConns("one"); len(s.conns) != 1 {
		t.Error("a connection to the master ends with one that is a replica")
	}
	if s.closeConns("two"); len(s.conns) != 0 {
		t.Error("a connection to a master that is a replica goes on")
	}
	if kept.Close(); len(order) != 2 || order[0] != ">one" || order[1] != "one>two" {
		t.Errorf("told of %q", order)
	}
}

// A Dial waits for Sentinels that don't answer for no longer than a second.
func TestNoSentinelAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSentinels("g", []string{"a"})
		s.recordFailure("a", errors.New("some reason"))
		began := time.Now()
		_, err := s.current(context.Background())
		if took := time.Since(began); took != firstVoteTimeout || err == nil ||
			err.Error() != "no Sentinel has told who the master is: Sentinel a: some reason" {
			t.Errorf("%v after %v", err, took)
		}
		over, cancel := context.WithCancel(context.Background())
		cancel()
		began = time.Now()
		if _, err := s.current(over); err == nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A connection that the server resets while it is shut down stays open for its reader, which closes
// it: the kernel no longer reports a connection that is closed under an event loop.
func TestShutdownLeavesTheConnectionOpen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server.(*net.TCPConn).SetLinger(0)
	server.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Read(func(fd uintptr) bool { // returns when the reset has come
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return err != syscall.EAGAIN
	})
	(&serverConn{Conn: conn}).shutdown()
	conn.SetReadDeadline(testwait.Deadline())
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v", err)
	}
}

// A Sentinel that nobody reaches, or that refuses the login, is reported with the reason.
func TestSentinelThatDoesNotServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	wrong := answering(t, round{1, "-WRONGPASS invalid username-password pair\r\n"})
	for addr, reason := range map[string]string{ln.Addr().String(): "refused", wrong: "WRONGPASS"} {
		u := &Upstream{Network: "tcp", sentinels: newSentinels("g", []string{addr})}
		u.secrets.sentinelSecret = "pw"
		f := &follower{upstream: u, log: hclog.NewNullLogger()}
		err := f.listen(t.Context(), addr, func() { t.Error("it has answered") })
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("the error is %v, without %q", err, reason)
		}
	}
}

// A Sentinel does not serve either that answers, and takes no second connection on which it would
// report changes, or ends that one.
func TestSentinelThatReportsNothing(t *testing.T) {
	for _, accepts := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		serving.Go(func() { // ends with ln
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				serving.Go(func() { // ends with the listen below
					defer conn.Close()
					for in := bufio.NewReader(conn); ; {
						words, err := wire.ReadCommand(in)
						switch request := strings.Join(words, " "); {
						case err != nil, words[0] == "SUBSCRIBE":
							return
						case strings.HasPrefix(request, "SENTINEL MASTER "):
							if !accepts {
								ln.Close()
							}
							io.WriteString(conn, "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n7\r\n")
						default:
							io.WriteString(conn, "*2\r\n$1\r\nh\r\n$2\r\n79\r\n")
						}
					}
				})
			}
		})
		addr := ln.Addr().String()
		u := &Upstream{Network: "tcp", sentinels: newSentinels("g", []string{addr})}
		f := &follower{upstream: u, log: hclog.NewNullLogger(), replaced: func() {}}
		ctx, cancel := context.WithDeadline(t.Context(), testwait.Deadline())
		answered := false
		err = f.listen(ctx, addr, func() { answered = true })
		if err == nil || ctx.Err() != nil || !answered {
			t.Errorf("accepts a second one %v: %v, %v, answered %v", accepts, err, ctx.Err(),
				answered)
		}
		cancel()
		ln.Close()
		serving.Wait()
	}
}

// A Sentinel that answers nonsense is one that does not answer. What it then says of changes only
// makes the proxy ask again.
func TestSentinelNonsense(t *testing.T) {
	const facts, addr = "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n7\r\n", "*2\r\n$1\r\nh\r\n$2\r\n79\r\n"
	for _, test := range []struct {
		facts, addr string
		good        bool
	}{
		{facts, addr, true},
		{"$9223372036854775807\r\n", "", false},
		{"*9223372036854775807\r\n", "", false},
		{"*0\r\n", addr, false},
		{"-ERR No such master with that name\r\n", "*-1\r\n", false},
		{facts, "*-1\r\n", false},
		{facts, "*0\r\n", false},
		{facts, "*2\r\n*0\r\n:79\r\n", false},
		{facts, "*2\r\n$1\r\nh\r\n$1\r\n0\r\n", false},
		{facts, "*2\r\n$0\r\n\r\n$2\r\n79\r\n", false},
		{facts, addr + "+more\r\n", false},
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "", false},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int32
			serve := func(conn net.Conn) {
				defer conn.Close()
				for in := bufio.NewReader(conn); ; {
					words, err := wire.ReadCommand(in)
					request := strings.ToUpper(strings.Join(words, " "))
					switch {
					case err != nil:
						return
					case strings.HasPrefix(request, "SENTINEL MASTER "):
						asked.Add(1)
						io.WriteString(conn, test.facts)
					case strings.Contains(request, "GET-MASTER"):
						io.WriteString(conn, test.addr)
					case strings.Contains(request, "SUBSCRIBE"):
						io.WriteString(conn, "*0\r\n*1\r\n:5\r\n$1\r\nx\r\n")
					}
				}
			}
			var serving sync.WaitGroup
			serving.Go(func() { // ends with ln
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					serving.Go(func() { serve(conn) }) // ends with the upstream's Follow
				}
			})
			u := &Upstream{Network: "tcp", sentinels: newSentinels("g", []string{ln.Addr().String()})}
			ctx, cancel := context.WithCancel(t.Context())
			serving.Go(func() { // ends when the upstream has asked, or patience does
				// the second answer has been read by then
				testwait.Holds(func() bool { return asked.Load() >= 3 })
				cancel()
			})
			var log strings.Builder
			u.Follow(ctx, hclog.New(&hclog.LoggerOptions{Output: &log}), func() {})
			ln.Close()
			serving.Wait()
			said := map[bool]string{true: "a Sentinel names no master: check the name of the " +
				"group in --upstream",
				false: "a Sentinel does not answer"}[strings.HasPrefix(test.facts, "-")]
			if strings.Contains(log.String(), said) == test.good {
				t.Errorf("%q: the log says %q", test.facts, log.String())
			}
			if got := u.sentinels.master; (got == vote{"h:79", 7}) != test.good || asked.Load() < 2 {
				t.Errorf("%q, %q: %+v after %d questions", test.facts, test.addr, got, asked.Load())
			}
		})
	}
}
