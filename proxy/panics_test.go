package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/panics"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// logBuffer is what a server has logged.
type logBuffer struct{ testredis.LogBuffer }

// faults are the lines that tell of panics.
func (b *logBuffer) faults() (lines []string) {
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, "lockproxy has a fault") {
			lines = append(lines, line)
		}
	}
	return lines
}

// faultyServer is a server that serves in front of the Redis at url, where LOLWUT with an argument
// panics before it is relayed.
func faultyServer(t *testing.T, url string) (s *Server, log *logBuffer, addr string) {
	t.Helper()
	redis, err := upstream.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	lolwut := lookup([]byte("lolwut"))
	before := lolwut.inspect
	t.Cleanup(func() { lolwut.inspect = before }) // behind the server's end
	var none map[string]bool
	lolwut.inspect = func(r passthrough.Request, args [][]byte) passthrough.Request {
		if len(args) > 1 {
			none[string(args[1])] = true
		}
		return r
	}
	log = &logBuffer{}
	s = New(Config{Upstream: redis, Logger: hclog.New(&hclog.LoggerOptions{Output: log}),
		MaxClients: 100, UpstreamConns: 4,
		Locks: lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Hour}})
	return s, log, serve(t, s)
}

// serve lets a server serve until the test ends, and returns its address.
func serve(t *testing.T, s *Server) (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, s, ln)
}

func serveOn(t *testing.T, s *Server, ln net.Listener) (addr string) {
	served := make(chan struct{})
	go func() { // ends with Close, and is waited for
		defer close(served)
		s.Serve(ln)
	}()
	t.Cleanup(func() { s.Close(); <-served })
	return ln.Addr().String()
}

// talker is a client.
type talker struct {
	net.Conn
	*bufio.Reader
	t    *testing.T
	name string
}

func talk(t *testing.T, addr, name string) *talker {
	t.Helper()
	return talkBy(t, "tcp", addr, name)
}

func talkBy(t *testing.T, network, addr, name string) *talker {
	t.Helper()
	nc, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(testwait.Deadline())
	return &talker{nc, bufio.NewReader(nc), t, name}
}

func (c *talker) say(text string) { io.WriteString(c.Conn, text+"\r\n") }

// hear checks that the next line that the client hears begins with want.
func (c *talker) hear(want string) {
	c.t.Helper()
	if line, err := c.ReadString('\n'); !strings.HasPrefix(line, want) || line == "" {
		c.t.Fatalf("%s hears %q, %v; want %q", c.name, line, err, want)
	}
}

func sessionOf(t *testing.T, s *Server, c *talker) *session {
	t.Helper()
	for _, sess := range s.list() {
		if sess.client.raw.RemoteAddr().String() == c.LocalAddr().String() {
			return sess
		}
	}
	t.Fatalf("%s has no session", c.name)
	return nil
}

// failWriting makes the next reply to a client panic where it is written.
func failWriting(t *testing.T, s *Server, c *talker) {
	sessionOf(t, s, c).client.asked.Store(1) // there is no Observer to be told
}

// A panic in what runs for one client alone disconnects that client, whether an event loop, a
// goroutine or the reader of its home runs it. Its session lock goes to the next in line, others are
// served, and one line of the log says where it was, without a byte of the request.
func TestPanicDisconnectsOneClient(t *testing.T) {
	redis := testredis.Start(t)
	for name, test := range map[string]struct {
		before, fault string
		entry         string
		inReply       bool
	}{
		"in a loop":        {fault: "LOLWUT secret", entry: "proxy.(*session).Ready"},
		"in a goroutine":   {fault: "INFO nothing lockproxy\r\nLOLWUT secret", entry: "proxy.(*session).run"},
		"by a home":        {before: "MULTI", fault: "ECHO secret", entry: "passthrough.(*home).Consume", inReply: true},
		"behind its locks": {fault: "LOCK mine 600\r\nLOLWUT secret", entry: "proxy.(*session)."},
	} {
		t.Run(name, func(t *testing.T) {
			redis.Ask("FLUSHALL")
			s, log, addr := faultyServer(t, redis.URL())
			faulty, waiter, other := talk(t, addr, "the faulty client"), talk(t, addr, "the waiter"),
				talk(t, addr, "another client")
			other.say("SET k v")
			other.hear("+OK")
			faulty.say("LOCK a 600 SESSION")
			faulty.hear(":")
			waiter.say("LOCK a 600 WAIT 0")
			other.say("LOCKINFO a WAITERS")
			testwait.Until(t, "the waiter waits", func() bool { return s.locks.Waiting() })
			other.hear("*")
			other.Conn.Close()
			other = talk(t, addr, "another client")
			if test.before != "" {
				faulty.say(test.before)
				faulty.hear("+OK")
			}
			if test.inReply {
				failWriting(t, s, faulty)
			}
			faulty.say(test.fault)
			if heard, err := io.ReadAll(faulty.Reader); bytes.Contains(heard, []byte("secret")) {
				t.Errorf("the faulty client hears %q, %v", heard, err)
			}
			waiter.hear(":")
			other.say("GET k")
			other.hear("$1")
			other.hear("v")
			other.say("INFO lockproxy")
			text := ""
			for !strings.Contains(text, "once_given_up") {
				line, err := other.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				text += line
			}
			if !strings.Contains(text, "\r\npanics:1\r\n") || s.Stats().Panics != 1 {
				t.Errorf("counted: %d; INFO: %s", s.Stats().Panics, text)
			}
			testwait.Until(t, "the session ends", func() bool { return s.Stats().Clients == 2 })
			lines := log.faults()
			if len(lines) != 1 || !strings.Contains(lines[0], "[ERROR]") ||
				!strings.Contains(lines[0], test.entry) || !strings.Contains(lines[0], ".go:") {
				t.Errorf("logged: %q", lines)
			}
			if text := strings.Join(lines, ""); strings.Contains(text, "secret") {
				t.Errorf("the log has what the client has sent: %s", text)
			}
		})
	}
}

// sharedFaults are panics where state is shared: by what they are on their way.
var sharedFaults = map[string]struct {
	fault, within string
	inReply       bool
}{
	"a lane gives out replies":             {"GET k", "passthrough.(*lane).distribute", true},
	"a loop has begun a lock command":      {"FENCE a 1 LOLWUT x", "proxy.(*session).Ready", false},
	"a goroutine has begun a lock command": {"INFO lockproxy\r\nFENCE a 1 LOLWUT x", "proxy.(*session).run", false},
}

const faultVariable, faultRedis = "LOCKPROXY_TEST_FAULT", "LOCKPROXY_TEST_FAULT_REDIS"

// A panic while state is changed that clients share ends the process, with the stack.
func TestPanicInSharedStateEndsTheProcess(t *testing.T) {
	if name := os.Getenv(faultVariable); name != "" {
		endByFault(t, name)
		return
	}
	redis := testredis.Start(t)
	for name, test := range sharedFaults {
		child := exec.Command(os.Args[0], "-test.run=^TestPanicInSharedStateEndsTheProcess$")
		child.Env = append(os.Environ(), faultVariable+"="+name, faultRedis+"="+redis.URL())
		out, _ := child.CombinedOutput()
		if status := child.ProcessState.ExitCode(); status != 2 ||
			!bytes.Contains(out, []byte("\npanic: ")) && !bytes.HasPrefix(out, []byte("panic: ")) ||
			!bytes.Contains(out, []byte(test.within)) {
			t.Errorf("%s: the process ends with %d, and says %s", name, status, out)
		}
	}
}

// endByFault is the process that ends.
func endByFault(t *testing.T, name string) {
	test := sharedFaults[name]
	s, _, addr := faultyServer(t, os.Getenv(faultRedis))
	faulty := talk(t, addr, "the faulty client")
	faulty.say("PING")
	faulty.hear("+PONG")
	// While no lane is open a client has a home, where the fault would be its own.
	for sessionOf(t, s, faulty).pipe.Status().Home != nil {
		faulty.Conn.Close()
		faulty = talk(t, addr, "the faulty client")
		faulty.say("PING")
		faulty.hear("+PONG")
	}
	if test.inReply {
		failWriting(t, s, faulty)
	}
	faulty.say(test.fault)
	heard, err := io.ReadAll(faulty.Reader)
	fmt.Printf("the process goes on: %q, %v\n", heard, err)
}

// A lock that a client is about to take when another of its requests panics is released, whether
// Redis has answered by then or not.
func TestPanicReleasesLocksOnTheirWay(t *testing.T) {
	for _, answered := range []bool{true, false} {
		redis := testredis.Start(t)
		s := serverWith(t, redis.URL(), lockcmd.Config{MaxTimeout: time.Hour,
			FenceRetention: time.Hour})
		sess, far := unread(t, s)
		arrives(sess, far, "LOCK other 600\r\n") // so that there are a connection, and the script
		for len(sess.locks.begun) > 0 {
			<-sess.locks.begun[0].answer.Done
			ready(sess, false)
		}
		if !answered {
			redis.Pause()
		}
		if arrives(sess, far, "LOCK a 600\r\n") != eventloop.Stay || len(sess.locks.begun) != 1 {
			t.Fatal("LOCK is left to the goroutine")
		}
		if answered {
			<-sess.locks.begun[0].answer.Done
		}
		sess.client.socket = nil
		if ready(sess, true) != eventloop.Leave || panics.In(sess.broken) == nil {
			t.Fatalf("the loop goes on after %v", sess.broken)
		}
		ended := make(chan struct{})
		go func() { // ends with the client, which is waited for
			defer close(ended)
			sess.Resume()
		}()
		if !answered {
			testwait.Until(t, "the proxy releases the lock", func() bool {
				return sess.x.ctx.Err() != nil
			})
			redis.Resume()
		}
		testwait.For(t, "the end of the session", ended)
		testwait.Until(t, "the lock is taken, and released", func() bool {
			return redis.Ask("EXISTS", "a") == ":0" &&
				redis.Ask("KEYS", "a:lockproxy:*") != "*0"
		})
	}
}
