//go:build memory

package relay_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
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
	p.cmd = exec.Command(bin, append([]string{"--listen", p.addr, "--upstream", url}, args...)...)
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
		nc, err := net.Dial("tcp", p.addr)
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
