//go:build linux

package process

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"lockproxy/internal/test/freeport"
)

// Proxy is a lockproxy process.
type Proxy struct {
	Process
	base []string
}

// Build compiles a command of this module with the race detector into dir and returns its path. The
// working directory must be in the module.
func Build(ctx context.Context, dir, command string) (string, error) {
	path := filepath.Join(dir, command)
	out, err := exec.CommandContext(ctx, "go", "build", "-race", "-o", path, "lockproxy/cmd/"+
		command).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot build %s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return path, nil
}

// StartProxy starts the lockproxy at path in front of upstream ("host:port") and waits until it
// listens. more are further flags.
func StartProxy(ctx context.Context, path, upstream string, more ...string) (*Proxy, error) {
	return StartProxyOn(ctx, "127.0.0.1", path,
		append([]string{"--upstream", "redis://" + upstream}, more...)...)
}

// StartProxyOn starts the lockproxy at path with these flags at one of this machine's addresses,
// and waits until it listens.
func StartProxyOn(ctx context.Context, host, path string, flags ...string) (*Proxy, error) {
	addr, err := freeport.Addr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	addr = net.JoinHostPort(host, port)
	p := &Proxy{Process: Process{Addr: addr, path: path},
		base: append([]string{"--listen", addr, "--log-level", "warn"}, flags...)}
	p.args = p.base
	p.env = []string{"GORACE=halt_on_error=0"}
	return p, p.Start(ctx)
}

// Start starts the process again, at the same address.
func (p *Proxy) Start(ctx context.Context) error {
	if err := p.start(); err != nil {
		return err
	}
	return p.awaitPort(ctx, func() bool {
		nc, err := net.Dial("tcp", p.Addr)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

// Also makes the flags, besides those of the beginning, with which the process starts from now on.
func (p *Proxy) Also(flags ...string) {
	p.args = append(p.base[:len(p.base):len(p.base)], flags...)
}

// Reload has the process read its files again.
func (p *Proxy) Reload() {
	if p.Alive() {
		p.cmd.Process.Signal(syscall.SIGHUP)
	}
}

// Replace starts another process with the same address and flags, --handover among them, and
// returns it when p has handed over and ended.
func (p *Proxy) Replace(ctx context.Context, patience time.Duration) (*Proxy, error) {
	successor := &Proxy{Process: Process{Addr: p.Addr, path: p.path, args: p.args, env: p.env},
		base: p.base}
	if err := successor.Start(ctx); err != nil {
		return successor, err
	}
	select {
	case <-p.done:
		return successor, nil
	case <-time.After(patience):
		return successor, fmt.Errorf(
			"the process before has not ended within %v:\n%s\nthe new one says:\n%s", patience,
			p.Log(), successor.Log())
	}
}
