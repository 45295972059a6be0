package proxytest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// OpenFiles is how many files this process has open.
func OpenFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// binaryDir is where Binary has put the command; "" if nowhere.
var binaryDir string

// builtBinary names the command if it is built already: make test does so once for all packages.
const builtBinary = "LOCKPROXY_TEST_BINARY"

var buildBinary = sync.OnceValues(func() (path string, err error) {
	if path = os.Getenv(builtBinary); path != "" {
		return path, nil
	}
	if binaryDir, err = os.MkdirTemp("", "lockproxy-test-"); err != nil {
		return "", err
	}
	path = filepath.Join(binaryDir, "lockproxy")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path,
		"lockproxy/cmd/lockproxy").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

// Binary is the path of the command, which is built once for all tests of a package.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Main runs a package's tests and ends what they have left for each other: the lasting servers and
// the built command. It is for TestMain. The connections of these sides go by all transports.
func Main(m *testing.M, byAllTransports ...testredis.Side) {
	again := testredis.RotateTransports(byAllTransports...)
	status := m.Run()
	if status != 0 && len(byAllTransports) > 0 {
		fmt.Printf("the same transports again: %s=%s\n", testredis.TransportVariable, again)
	}
	Lasting.End()
	os.RemoveAll(binaryDir)
	os.Exit(status)
}

// Process is a lockproxy process.
type Process struct {
	Addr string
	Cmd  *exec.Cmd
	Log  bytes.Buffer
	Exit chan error
}

// StartProcess runs the built command with these arguments and waits until it accepts.
func StartProcess(t *testing.T, args ...string) *Process {
	t.Helper()
	return StartProcessAt(t, fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t)), args...)
}

// StartProcessAt does so at an address.
func StartProcessAt(t *testing.T, addr string, args ...string) *Process {
	t.Helper()
	p := &Process{Addr: addr, Exit: make(chan error, 1)}
	p.Cmd = exec.Command(Binary(t), append([]string{"--listen", p.Addr}, args...)...)
	p.Cmd.Stderr = &p.Log
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.Exit <- p.Cmd.Wait() }()
	t.Cleanup(func() { p.Cmd.Process.Kill() })
	testwait.Until(t, "the process accepts", func() bool {
		nc, err := net.Dial("tcp", p.Addr)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	return p
}

// Ends waits for the process to end, and returns its exit status.
func (p *Process) Ends(t *testing.T) int {
	t.Helper()
	testwait.For(t, "the process ends", p.Exit)
	return p.Cmd.ProcessState.ExitCode()
}
