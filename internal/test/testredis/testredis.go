package testredis

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/freeport"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// Server is one redis-server process, or between Kill and Restart, none.
type Server struct {
	Link *badlink.Link // the only way to it that others are told of; nil if there is none

	t     testing.TB
	port  int
	dir   string
	args  []string
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	log   LogBuffer

	mu     sync.Mutex
	down   bool       // killed or paused; guarded by mu
	asking []net.Conn // guarded by mu
}

// Start starts redis-server with additional arguments ("--requirepass", "x", …) and waits until it
// serves. It fails the test if redis-server is not installed. Nothing is saved to disk unless args
// say so.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartBy(t, ChooseTransport(t, Upstreams, TLS, Unix), args...)
}

// StartAddressed is Start for a test that tells clients apart by their addresses: proxies do not reach
// the server by a Unix socket, whose clients all have its own address.
func StartAddressed(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartBy(t, ChooseTransport(t, Upstreams, TLS), args...)
}

// StartBy is Start for a test that is about a transport: proxies reach the server by that.
func StartBy(t testing.TB, by Transport, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: run make deps")
	}
	var also []int
	if slices.Contains(args, clusterNode) {
		also = []int{busOffset}
	}
	s := newServer(t, args, also...)
	s.listenAlsoBy(by)
	s.start()
	return s
}

// newServer is a server that isn't started yet.
func newServer(t testing.TB, args []string, also ...int) *Server {
	s := &Server{t: t, port: FreePort(t, also...), dir: serverDir(t)}
	s.args = append([]string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir",
		s.dir, "--save", ""}, args...)
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("redis-server on port %d said:\n%s", s.port, s.log.String())
		}
	})
	return s
}

// FreePort returns a loopback port that nothing listens on, and that no other test is given until
// the test ends. Nor are the ports that lie above it by each of also.
func FreePort(t testing.TB, also ...int) int {
	t.Helper()
	r, err := freeport.Reserve(also...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Release)
	return r.Port
}

// Addr is host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Told is the address that others are told of: that of the link, if there is one, or that of TLS, if
// the servers of a group use that.
func (s *Server) Told() string {
	port, ok := s.tlsPort()
	switch {
	case s.Link != nil:
		return s.Link.Addr()
	case ok && slices.Contains(s.args, betweenServers[0]) && !slices.Contains(s.args, clusterNode):
		return "127.0.0.1:" + port
	}
	return s.Addr()
}

// linkBy makes a link, a round trip long, and has the server tell others of that by these options.
func (s *Server) linkBy(roundTrip time.Duration, options ...string) {
	s.t.Helper()
	s.Link = startLink(s.t, s.Addr(), roundTrip, TCP) // the servers use it, too
	_, port, _ := net.SplitHostPort(s.Link.Addr())
	for _, option := range options {
		s.args = append(s.args, option, port)
	}
}

// URL is redis://host:port. A proxy under test goes there by the transport that was chosen: see Reach.
func (s *Server) URL() string { return "redis://" + s.Addr() }

func (s *Server) start() {
	s.t.Helper()
	cmd, ended := exec.Command("redis-server", s.args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := StartProcess(cmd); err != nil {
		s.t.Fatal(err)
	}
	s.cmd, s.ended = cmd, ended
	go func() { // ends by Kill, which waits
		defer close(ended)
		cmd.Wait()
	}()
	s.setDown(false)
	testwait.Until(s.t, fmt.Sprintf("redis-server serves on port %d", s.port), func() bool {
		select {
		case <-ended:
			s.t.Fatalf("redis-server ended:\n%s", s.log.String())
		default:
		}
		return s.serves()
	})
}

// serves reports whether the server answers a PING, be it with an error that wants a password.
func (s *Server) serves() bool {
	nc, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return false
	}
	defer nc.Close()
	nc.SetDeadline(testwait.Deadline())
	nc.Write(wire.Append(nil, "PING"))
	var answer [8]byte
	n, _ := nc.Read(answer[:])
	return bytes.HasPrefix(answer[:n], []byte("+PONG")) ||
		bytes.HasPrefix(answer[:n], []byte("-NOAUTH"))
}

// Kill ends the process with SIGKILL and waits for it. It can be called again.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.setDown(true)
	os.Remove(filepath.Join(s.dir, PausedFile))
	s.cmd.Process.Kill()
	<-s.ended
	s.cmd = nil
}

// Restart starts the process again, on the same port and with the same arguments, ending it first
// if it runs.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// Pause stops the process with SIGSTOP, and returns when it has stopped; Resume lets it go on.
func (s *Server) Pause() {
	s.t.Helper()
	s.setDown(true)
	s.stop()
}

// PausedFile is in the directory of a server as long as its test has it stopped.
const PausedFile = "paused"

// stop is Pause, but those who ask the server wait.
func (s *Server) stop() {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, PausedFile), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Process.Signal(syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid)
	if !testwait.Holds(func() bool {
		line, err := os.ReadFile(stat)
		_, state, ok := bytes.Cut(line, []byte(") "))
		return err != nil || ok && state[0] == 'T'
	}) {
		s.t.Fatal("redis-server doesn't stop on SIGSTOP")
	}
}

// Resume lets a paused process go on.
func (s *Server) Resume() {
	os.Remove(filepath.Join(s.dir, PausedFile))
	s.cmd.Process.Signal(syscall.SIGCONT)
	s.setDown(false)
}

// LogBuffer keeps the log of a program. It is safe for concurrent use.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
