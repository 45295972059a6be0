//go:build linux

package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockproxy/internal/test/freeport"
	"lockproxy/internal/test/wire"
)

// Persistence is what Redis keeps of acknowledged writes when its machine loses power.
type Persistence string

// The kinds of persistence: none, or an append-only file that is synced after every write, every
// second, or when the kernel likes.
const (
	None     Persistence = "none"
	Always   Persistence = "always"
	Everysec Persistence = "everysec"
	Never    Persistence = "no"
)

// Redis is a redis-server process with its own directory.
type Redis struct {
	Process
	dir         string
	persistence Persistence
	clock       string // file with the offset of its clock; "" if it has the machine's clock
	sizes       []aofSize
}

// aofSize is how long the append-only file was at a time.
type aofSize struct {
	at   time.Time
	path string
	size int64
}

// Faketime is where Debian's package libfaketime puts its library.
const Faketime = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"

// StartRedis starts a redis-server in a new directory within dir. With clock its time can be
// stepped (needs Debian's libfaketime).
func StartRedis(ctx context.Context, dir string, persistence Persistence, clock bool,
	args ...string) (*Redis, error) {
	addr, err := freeport.Addr()
	if err != nil {
		return nil, err
	}
	r := &Redis{Process: Process{Addr: addr, path: "redis-server"}}
	if r.dir, err = os.MkdirTemp(dir, "redis"); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	r.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", r.dir, "--save", "",
		"--maxclients", "12000",
		"--tcp-backlog", "511", "--lua-time-limit", "200", "--repl-diskless-sync-delay", "0"}, args...)
	if clock {
		if err := r.fakeClock(); err != nil {
			return nil, err
		}
	}
	return r, r.Start(ctx, persistence)
}

func (r *Redis) fakeClock() error {
	library := Faketime
	if _, err := os.Stat(library); err != nil {
		found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
		if len(found) == 0 {
			return fmt.Errorf("libfaketime is not installed: run make deps-faults")
		}
		library = found[0]
	}
	r.clock = filepath.Join(r.dir, "clock")
	// libc.so.6 before jemalloc, which Debian's redis-server links: jemalloc asks for the time
	// before libfaketime is ready.
	r.env = []string{"LD_PRELOAD=" + library + " libc.so.6", "FAKETIME_TIMESTAMP_FILE=" + r.clock,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"}
	return r.SetClock(0)
}

// Dir is where the server keeps its files.
func (r *Redis) Dir() string { return r.dir }

// SetClock makes the server's clock differ from the machine's by offset, at once.
func (r *Redis) SetClock(offset time.Duration) error {
	return r.setClock(fmt.Sprintf("%+.3f\n", offset.Seconds()))
}

func (r *Redis) setClock(text string) error {
	if r.clock == "" {
		return fmt.Errorf("this redis-server was started without its own clock")
	}
	if err := os.WriteFile(r.clock+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(r.clock+".new", r.clock)
}

// Freeze stops the server's clock at a time in whole seconds, at once.
func (r *Redis) Freeze(at time.Time) error { return r.setClock(at.Format(time.DateTime) + "\n") }

// Start starts the process again at the same address, with the contents of its files, and waits
// until it has read them.
func (r *Redis) Start(ctx context.Context, persistence Persistence) error {
	r.persistence, r.sizes = persistence, nil
	args := r.args
	if persistence == None {
		r.args = append(r.args[:len(r.args):len(r.args)], "--appendonly", "no")
	} else {
		r.args = append(r.args[:len(r.args):len(r.args)], "--appendonly", "yes", "--appendfsync",
			string(persistence))
	}
	err := r.start()
	r.args = args
	if err != nil {
		return err
	}
	return r.awaitPort(ctx, func() bool { return strings.HasPrefix(r.ask("PING"), "+PONG") })
}

// ask sends one command on a new connection and returns the
// beginning of its reply, "" if there was none.
func (r *Redis) ask(args ...string) string {
	nc, err := net.Dial("tcp", r.Addr)
	if err != nil {
		return ""
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	nc.Write(wire.Append(nil, args...))
	var answer [64]byte
	n, _ := nc.Read(answer[:])
	return string(answer[:n])
}

// Watch records the length of the append-only file, for PowerCut. Call it several times a second.
func (r *Redis) Watch() {
	now := time.Now()
	if path, size := r.aof(); path != "" {
		r.sizes = append(r.sizes, aofSize{now, path, size})
	}
	for len(r.sizes) > 0 && now.Sub(r.sizes[0].at) > 40*time.Second {
		r.sizes = r.sizes[1:]
	}
}

// aof is the append-only file that grows.
func (r *Redis) aof() (path string, size int64) {
	found, _ := filepath.Glob(filepath.Join(r.dir, "appendonlydir", "*.incr.aof"))
	for _, f := range found {
		if info, err := os.Stat(f); err == nil && f > path {
			path, size = f, info.Size()
		}
	}
	return path, size
}

// PowerCut kills the process and takes from its files what a machine without power might not have
// written: with Always nothing, with Everysec the last second, with Never what came within lost,
// and with None everything.
func (r *Redis) PowerCut(lost time.Duration) error {
	r.Kill()
	switch r.persistence {
	case None:
		return os.RemoveAll(filepath.Join(r.dir, "appendonlydir"))
	case Always:
		return nil
	case Everysec:
		lost = time.Second
	}
	since := time.Now().Add(-lost)
	for _, s := range r.sizes {
		if path, size := r.aof(); s.at.After(since) && s.path == path && s.size <= size {
			return os.Truncate(s.path, s.size)
		}
	}
	return nil
}
