//go:build linux

package process

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"time"

	"lockproxy/internal/test/freeport"
)

// Proxy is a lockproxy process.
type Proxy struct{ Process }

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
	return StartProxyOn(ctx, "127.0.0.1", path, upstream, more...)
}

// StartProxyOn is StartProxy at one of this machine's addresses.
func StartProxyOn(ctx context.Context, host, path, upstream string,
	more ...string) (*Proxy, error) {
	addr, err := freeport.Addr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	addr = net.JoinHostPort(host, port)
	p := &Proxy{Process{Addr: addr, path: path}}
	p.args = append([]string{"--listen", addr, "--upstream", "redis://" + upstream, "--log-level",
		"warn"}, more...)
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

// Replace starts another process with the same address and flags, --handover among them, and
// returns it when p has handed over and ended.
func (p *Proxy) Replace(ctx context.Context, patience time.Duration) (*Proxy, error) {
	successor := &Proxy{Process{Addr: p.Addr, path: p.path, args: p.args, env: p.env}}
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
