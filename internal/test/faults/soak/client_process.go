//go:build linux

package soak

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/faults/process"
)

// clientProcess is a client.Locker in a separate process: locktools soak client.
type clientProcess struct {
	id    int
	args  func(start int) []string
	path  string
	on    *process.Machine // nil is this one
	notes *history.Collector

	mu      sync.Mutex
	cmd     *exec.Cmd // guarded by mu; nil if none runs
	starts  int       // guarded by mu
	reading sync.WaitGroup
}

// ClientArgs are the arguments of locktools for a client process.
func ClientArgs(id int, seed uint64, targets []client.Target, keys []string) []string {
	args := []string{"soak", "client", "--id", fmt.Sprint(id), "--seed", fmt.Sprint(seed), "--keys",
		strings.Join(keys, ",")}
	for _, t := range targets {
		args = append(args, "--target", fmt.Sprintf("%d=%s", t.Proxy, t.Addr))
	}
	return args
}

func (p *clientProcess) startAgain() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.args == nil {
		return nil
	}
	p.starts++
	cmd := exec.Command(p.path, p.args(p.starts)...)
	if p.on != nil {
		cmd = p.on.Command(p.path, p.args(p.starts)...)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(cmd); err != nil {
		return fmt.Errorf("cannot start a client: %w", err)
	}
	p.cmd = cmd
	p.reading.Go(func() { p.notes.Collect(out) }) // ends with the process; end waits for it
	return nil
}

func (p *clientProcess) kill()   { p.end(syscall.SIGKILL) }
func (p *clientProcess) finish() { p.end(syscall.SIGTERM) }
func (p *clientProcess) pause()  { p.signal(syscall.SIGSTOP) }
func (p *clientProcess) resume() { p.signal(syscall.SIGCONT) }

func (p *clientProcess) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.cmd.Process.Signal(s)
	}
}

// end ends the process, and returns when its whole output is read.
func (p *clientProcess) end(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	at := history.Now()
	p.cmd.Process.Signal(s)
	p.reading.Wait()
	p.cmd.Wait()
	p.notes.Died(p.id, at)
	p.cmd = nil
}
