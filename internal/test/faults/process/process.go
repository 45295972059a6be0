//go:build linux

package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is one program that serves a loopback port. Its methods are for one goroutine.
type Process struct {
	Addr string

	path string
	args []string
	env  []string
	log  tail
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// start starts the program.
func (p *Process) start() error {
	cmd := exec.Command(p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	if err := Start(cmd); err != nil {
		return fmt.Errorf("cannot start %s: %w", p.path, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() { // ends with the process; End waits for it
		cmd.Wait()
		close(done)
	}()
	return nil
}

// Pid is the process's id, 0 if none runs.
func (p *Process) Pid() int {
	if !p.Alive() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and waits for it. It can be called again.
func (p *Process) Kill() { p.end(syscall.SIGKILL, time.Minute) }

// Stop sends SIGTERM, and SIGKILL after patience. It reports whether SIGTERM was enough.
func (p *Process) Stop(patience time.Duration) bool { return p.end(syscall.SIGTERM, patience) }

func (p *Process) end(signal syscall.Signal, patience time.Duration) bool {
	if p.cmd == nil {
		return true
	}
	p.cmd.Process.Signal(signal)
	select {
	case <-p.done:
		p.cmd = nil
		return true
	case <-time.After(patience):
	}
	p.cmd.Process.Kill()
	<-p.done
	p.cmd = nil
	return false
}

// Pause stops the process with SIGSTOP, and returns when it has stopped or ended.
func (p *Process) Pause() {
	p.cmd.Process.Signal(syscall.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)
	deadline := time.Now().Add(time.Minute)
	for ; time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		line, err := os.ReadFile(stat)
		if _, state, ok := bytes.Cut(line, []byte(") ")); err != nil || ok && state[0] == 'T' {
			return
		}
	}
}

// Resume lets a paused process continue.
func (p *Process) Resume() {
	if p.cmd != nil {
		p.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// Memory is the process's resident memory in bytes, 0 if none runs.
func (p *Process) Memory() int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Pid()))
	var size, resident int64
	if err == nil {
		fmt.Sscan(string(raw), &size, &resident)
	}
	return resident * int64(os.Getpagesize())
}

// Log is the last part of what the process has printed.
func (p *Process) Log() string { return p.log.String() }

// Alarms are the printed lines that report races and panics.
func (p *Process) Alarms() string { return p.log.Alarms() }

// awaitPort returns when ready returns true, the process has ended, or it takes too long.
func (p *Process) awaitPort(ctx context.Context, ready func() bool) error {
	deadline := time.Now().Add(3 * time.Minute)
	for !ready() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !p.Alive():
			return fmt.Errorf("%s ended at once:\n%s", p.path, p.Log())
		case time.Now().After(deadline):
			return fmt.Errorf("%s does not serve on %s:\n%s", p.path, p.Addr, p.Log())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// tail keeps the last of what is written, and all that looks like a race or a panic.
type tail struct {
	mu     sync.Mutex
	text   []byte // guarded by mu
	alarms []byte // guarded by mu
	alarm  bool   // guarded by mu; the following lines belong to an alarm
}

const maxTail = 64 << 10

func (t *tail) Write(piece []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, piece...)
	if len(t.text) > 2*maxTail {
		t.text = append([]byte(nil), t.text[len(t.text)-maxTail:]...)
	}
	for _, word := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: ",
		"=== REDIS BUG REPORT START"} {
		t.alarm = t.alarm || bytes.Contains(piece, []byte(word))
	}
	if t.alarm && len(t.alarms) < maxTail {
		t.alarms = append(t.alarms, piece...)
	}
	return len(piece), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

func (t *tail) Alarms() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.alarms))
}
