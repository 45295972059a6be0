//go:build memory

package relay_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
)

// hostileProxy is a lockproxy process.
type hostileProxy struct {
	t     *testing.T
	cmd   *exec.Cmd
	addr  string
	redis *testredis.Server
}

// startHostileProxy starts bin and ends it with the test,
// which fails if the process has ended before, or badly.
func startHostileProxy(t *testing.T, bin string, redis *testredis.Server) *hostileProxy {
	t.Helper()
	return startHostileProxyAt(t, bin, redis, redis.URL())
}

// startHostileProxyAt does so in front of several servers, of which redis is one, with further
// arguments.
func startHostileProxyAt(t *testing.T, bin string, redis *testredis.Server, url string,
	args ...string) *hostileProxy {
	t.Helper()
	p := &hostileProxy{t: t, addr: fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t)), redis: redis}
	args = append([]string{"--listen", p.addr, "--upstream", testredis.Reach(url)}, args...)
	if strings.HasPrefix(testredis.Reach(url), "rediss") {
		ca := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(ca, testtls.Common().CAPEM, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--upstream-tls-ca", ca)
	}
	p.cmd = exec.Command(bin, args...)
	var output bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &output, &output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
		if t.Failed() {
			t.Logf("it said:\n%.5000s", output.String())
		}
	})
	testwait.Until(t, "the proxy listens", func() bool {
		nc, err := proxytest.TryDial(p.addr)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	return p
}

// memory is a figure of /proc/PID/status in bytes: VmRSS, or VmHWM, the peak.
func (p *hostileProxy) memory(field string) int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), field+":")
	var kilobytes int64
	if _, err := fmt.Sscan(text, &kilobytes); err != nil {
		p.t.Fatalf("%s in %q: %v", field, status, err)
	}
	return kilobytes << 10
}

// cpu is the processor time that the proxy has used.
func (p *hostileProxy) cpu() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, text, _ := bytes.Cut(stat, []byte(") ")) // the name can contain blanks
	fields := strings.Fields(string(text))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// rests returns once the proxy uses no processor time: from one look to the next, several times in
// a row, each of its threads has slept, and none has run.
func (p *hostileProxy) rests() {
	p.t.Helper()
	quiet, before := 0, ""
	testwait.Until(p.t, "the proxy is at rest", func() bool {
		ran, asleep := p.threads()
		quiet++
		if !asleep || ran != before {
			quiet, before = 0, ran
		}
		return quiet == 10
	})
}

// threads is how long each thread of the proxy has run, and whether all sleep.
func (p *hostileProxy) threads() (ran string, asleep bool) {
	p.t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p.cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		p.t.Fatalf("no threads: %v", err)
	}
	asleep = true
	for _, task := range tasks { // one that ends meanwhile has no files
		times, _ := os.ReadFile(task + "/schedstat")
		stat, _ := os.ReadFile(task + "/stat")
		spent, _, _ := strings.Cut(string(times), " ")
		_, state, _ := bytes.Cut(stat, []byte(") "))
		ran += spent + " "
		asleep = asleep && bytes.HasPrefix(state, []byte("S"))
	}
	return ran, asleep
}

// hasRead returns when the proxy has read all that a client has sent it.
func (p *hostileProxy) hasRead(nc *net.TCPConn) {
	p.t.Helper()
	words := func(addr net.Addr) string { // as in /proc/net/tcp
		a := addr.(*net.TCPAddr)
		return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a.IP.To4()), a.Port)
	}
	near, far := words(nc.LocalAddr())+" "+words(nc.RemoteAddr()),
		words(nc.RemoteAddr())+" "+words(nc.LocalAddr())
	testwait.Until(p.t, "the proxy has read all", func() bool {
		sockets, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			p.t.Fatal(err)
		}
		// Behind the addresses are the state and how many bytes have not arrived, or are not read.
		return strings.Contains(string(sockets), near+" 01 00000000:") &&
			regexp.MustCompile(far+" 01 [0-9A-F]{8}:00000000 ").Match(sockets)
	})
}

// maxLeft is how much a proxy's memory can stay above its start value:
// 16 MB can be garbage that is not yet worth collecting, in front of a
// used heap that the runtime returns to the kernel only slowly.
const maxLeft = 32 << 20

// expectMemoryBack fails unless the proxy's memory comes back to within maxLeft of before.
func (p *hostileProxy) expectMemoryBack(before int64) {
	p.t.Helper()
	// A runtime that has nothing to do collects its garbage every two minutes only.
	work := fmt.Appendf(nil, "*2\r\n$6\r\nEXISTS\r\n$%d\r\n%s\r\n", 1<<20, make([]byte, 1<<20))
	testwait.Until(p.t, "the runtime returns memory", func() bool {
		if got := hostileTalk(p.t, p.addr, work); got != ":0\r\n" {
			p.t.Fatalf("EXISTS: %q", got)
		}
		return p.memory("VmRSS") <= before+maxLeft
	})
}

// watch watches the proxy.
func (p *hostileProxy) watch() *hostileWatch { return watchHostile(p.t, p.addr) }
