package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// terminal is a program that runs as in a terminal of 100 columns.
type terminal struct {
	t    *testing.T
	file *os.File
}

func startInTerminal(t *testing.T, name string, args ...string) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "terminal")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "TERM=xterm", "HOME="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait(); file.Close() })
	return &terminal{t: t, file: file}
}

var colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// types writes keys, and waits until each text of wants is shown behind them, in order.
func (x *terminal) types(keys string, wants ...string) {
	x.t.Helper()
	if _, err := x.file.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
	x.file.SetReadDeadline(testwait.Deadline())
	buf := make([]byte, 4096)
	for shown := ""; ; {
		rest, missing := colours.ReplaceAllString(shown, ""), ""
		for _, want := range wants {
			_, after, found := strings.Cut(rest, want)
			if !found {
				missing = want
				break
			}
			rest = after
		}
		if missing == "" {
			return
		}
		n, err := x.file.Read(buf)
		if err != nil {
			x.t.Fatalf("after %q it does not show %q: %v; it shows:\n%q", keys, missing, err, shown)
		}
		shown += string(buf[:n])
	}
}

// redis-cli hints and explains the lock commands, whatever the upstream knows of COMMAND DOCS.
func TestRedisCLIHintsLockCommands(t *testing.T) {
	for name, args := range map[string][]string{
		"embedded": nil,
		"Redis":    {"--upstream", testredis.Start(t).URL()},
		"a server without COMMAND": {"--upstream",
			testredis.Start(t, "--rename-command", "COMMAND", "").URL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := fmt.Sprint(testredis.FreePort(t))
			start(t, append([]string{"--listen", "127.0.0.1:" + port}, args...)...)
			cli := startInTerminal(t, "redis-cli", "-p", port)
			cli.types("", port+">")
			cli.types("LOCK ", "key timeout", "[WAIT seconds|PLACE seconds]")
			cli.types("\x15HELP LOCK\r", "LOCK key timeout", "summary:", port+">")
			cli.types("HELP FENCE\r", "FENCE key token command", "summary:", port+">")
			cli.types("SET ", "key value")
			cli.types("\x15UNLO\t job 1\r", "UNLOCK job 1", "(integer) 0")
		})
	}
}
