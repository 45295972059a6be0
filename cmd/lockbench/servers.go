package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// servers are processes that speak the Redis protocol; those that stand in front of others after
// them.
type servers struct{ running []*server }

// server is one process, which can be started again on the same address.
type server struct {
	addr string
	path string
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// close ends the processes.
func (s *servers) close() {
	for i := len(s.running) - 1; i >= 0; i-- { // what stands in front first
		s.running[i].end()
	}
}

// start runs a program and waits until it serves on addr.
func (s *servers) start(ctx context.Context, addr, path string, args ...string) (*server, error) {
	p := &server{addr: addr, path: path, args: args}
	if err := p.start(); err != nil {
		return nil, err
	}
	s.running = append(s.running, p)
	return p, p.wait(ctx)
}

func (p *server) start() error {
	p.log.Reset()
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	// a Ctrl-C is for lockbench, which ends its servers itself
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", p.path, err)
	}
	return nil
}

func (p *server) restart(ctx context.Context) error {
	p.end()
	if err := p.start(); err != nil {
		return err
	}
	return p.wait(ctx)
}

// wait until a command that only Redis can answer is answered.
func (p *server) wait(ctx context.Context) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := p.serves()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			p.end()
			return fmt.Errorf("%s doesn't serve on %s: %w: it said: %s", p.path, p.addr, err,
				strings.TrimSpace(p.log.String()))
		}
	}
}

func (p *server) serves() error {
	c, err := dial(p.addr)
	if err != nil {
		return err
	}
	defer c.close()
	c.nc.SetDeadline(time.Now().Add(time.Second))
	if slices.Contains(p.args, "--cluster-enabled") { // it has some keys only, or none yet
		_, err := c.do("PING")
		return err
	}
	r, err := c.do("GET", "lockbench:none")
	if err == nil && !r.null {
		err = errors.New("it knows a value where there is none")
	}
	return err
}

func (p *server) process() process { return process{p.cmd.Process.Pid} }

// end asks the process to stop, and makes it if it doesn't. It can be called again.
func (p *server) end() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(3*time.Second, func() { p.cmd.Process.Kill() })
	p.cmd.Wait()
	kill.Stop()
}
