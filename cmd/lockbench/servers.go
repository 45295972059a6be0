package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// servers are the processes of one report, and the directory they use.
type servers struct {
	dir     string
	running []*server
}

// server is one process that speaks the Redis protocol.
type server struct {
	addr string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

func newServers() (*servers, error) {
	dir, err := os.MkdirTemp("", "lockbench")
	if err != nil {
		return nil, fmt.Errorf("cannot make a directory for the servers: %w", err)
	}
	return &servers{dir: dir}, nil
}

// close ends the processes and removes the directory.
func (s *servers) close() {
	for i := len(s.running) - 1; i >= 0; i-- { // what stands in front first
		s.running[i].end()
	}
	os.RemoveAll(s.dir)
}

// buildProxy compiles lockproxy from the module that lockbench is run in.
func (s *servers) buildProxy(ctx context.Context) (string, error) {
	path := filepath.Join(s.dir, "lockproxy")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "lockproxy/cmd/lockproxy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot build lockproxy: %w: %s\nRun lockbench inside lockproxy's source, or name a built one with --proxy", err, bytes.TrimSpace(out))
	}
	return path, nil
}

func (s *servers) startRedis(ctx context.Context) (*server, error) {
	return s.start(ctx, "redis-server", func(port string) []string {
		return []string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no"}
	})
}

func (s *servers) startProxy(ctx context.Context, path, upstream string) (*server, error) {
	return s.start(ctx, path, func(port string) []string {
		return []string{"--listen", "127.0.0.1:" + port, "--upstream", "redis://" + upstream, "--log-level", "warn"}
	})
}

// start runs a program on a free loopback port and waits until it serves.
func (s *servers) start(ctx context.Context, path string, args func(port string) []string) (*server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	p := &server{addr: addr, cmd: exec.Command(path, args(port)...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for lockbench, which ends its servers itself
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w; make deps installs redis-server", path, err)
	}
	s.running = append(s.running, p)
	return p, p.wait(ctx)
}

func (p *server) wait(ctx context.Context) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := dial(p.addr)
		if err == nil {
			_, err = c.do("PING")
			c.close()
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			p.end()
			return fmt.Errorf("%s doesn't serve on %s: %w: it said: %s", p.cmd.Path, p.addr, err, strings.TrimSpace(p.log.String()))
		}
	}
}

// end asks the process to stop, and makes it if it doesn't. It may be called again.
func (p *server) end() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(3*time.Second, func() { p.cmd.Process.Kill() })
	p.cmd.Wait()
	kill.Stop()
}

// freeAddr is a loopback address that nothing listened on a moment ago.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("no free loopback port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
