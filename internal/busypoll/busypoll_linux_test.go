package busypoll

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// onOneProcessor has the test run as the package wants it.
func onOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// What the scheduler waits by is found, and says so when something has come that no goroutine has read yet.
func TestSchedulersEpoll(t *testing.T) {
	onOneProcessor(t)
	fd, ok := schedulersEpoll()
	if !ok {
		t.Fatal("the scheduler's epoll instance is not found")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	said := 0
	for range 20 {
		time.Sleep(time.Millisecond)
		before := readable(fd)
		peer.Write([]byte("x"))
		if !before && readable(fd) { // unless the scheduler's watchdog, which looks every 10 ms, was quicker
			said++
		}
		if n, err := nc.Read(make([]byte, 10)); n != 1 {
			t.Fatal(n, err)
		}
	}
	if said < 10 {
		t.Errorf("it has told of what came %d times of 20", said)
	}
}

// A goroutine that waits for the network is served while the Poller looks, as soon as something comes.
func TestServesWhileLooking(t *testing.T) {
	onOneProcessor(t)
	p := Start(10 * time.Second)
	if p == nil {
		if rationed("/proc/self/cgroup", "/sys/fs/cgroup") {
			return // and Start says so
		}
		t.Fatal("there is none")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() { // ends with its write
		time.Sleep(50 * time.Millisecond)
		w.Write([]byte("x"))
		w.Close()
	}()
	p.Stir()
	began := time.Now()
	r.Read(make([]byte, 1))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("read after %v", took)
	}
	p.Stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it looks on, and holds up Stop for %v", took)
	}
}

// With more processors there is nothing to be had.
func TestSeveralProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	if Start(time.Second) != nil {
		t.Error("it looks on several processors")
	}
}

func TestRationed(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(root, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := write("own", "1:name=systemd:/x\n0::/a.slice/b.service\n")
	is := func(want bool, what string) {
		t.Helper()
		if got := rationed(own, root); got != want {
			t.Errorf("%s: rationed %v", what, got)
		}
	}
	is(false, "no limits to be read")
	write("a.slice/b.service/cpu.max", "max 100000\n")
	is(false, "its own group has none")
	write("a.slice/cpu.max", "50000 100000\n")
	is(true, "a quota of the group around it")
	write("a.slice/cpu.max", "max 100000\n")
	write("cpu.max", "150000 100000\n")
	is(true, "a quota of the root that a container sees")
	os.Remove(filepath.Join(root, "cpu.max"))
	write("cpu/cpu.cfs_quota_us", "-1\n")
	is(false, "version 1 without a quota")
	write("cpu/cpu.cfs_quota_us", "50000\n")
	is(true, "version 1 with a quota")
	if rationed(filepath.Join(root, "none"), filepath.Join(root, "none")) {
		t.Error("rationed where nothing is known of it")
	}
}
