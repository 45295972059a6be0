package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Exit statuses of lockproxy run, next to the command's own; they follow timeout(1), env(1) and
// sysexits.h.
const (
	// EX_UNAVAILABLE: the proxy, or the Redis behind it, can't be reached: nothing was run
	exitUnreachable   = 69
	exitLost          = 124 // the lock was lost: the command was ended, or had run on without it
	exitRunFailed     = 125 // the request makes no sense, or was refused: nothing was run
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the number of the signal that ended the command
)

// runCommand is lockproxy run: it holds a session lock while a command runs.
type runCommand struct {
	Key       []string `required:"" env:"-" sep:"none" placeholder:"NAME"`
	Shared    bool     `env:"-" xor:"mode"`
	Limit     int      `env:"-" xor:"mode" range:"1 to 10000"`
	Timeout   seconds  `env:"-" default:"30" range:"0.001 to 315360000"`
	Wait      *seconds `env:"-" range:"0 to 315360000"`
	Max       *seconds `env:"-" range:"0.001 to 315360000"`
	Once      *seconds `env:"-" xor:"mode" range:"1 to 315360000"`
	Note      string   `env:"-" placeholder:"TEXT"`
	KillAfter seconds  `env:"-" default:"10" range:"0 to 86400"`

	target
	within time.Duration // for how long the proxy may be away; connectWithin but in tests
	owner  string        // ownerName

	ConflictExitCode int  `short:"E" env:"-" default:"75" range:"0 to 255"`
	Foreground       bool `env:"-"`
	Quiet            bool `short:"q" env:"-"`

	Command []string `arg:"" optional:"" passthrough:"" help:"The command and its arguments."`
}

// Help is printed below the command's help line.
func (c *runCommand) Help() string {
	return "The exit status is the command's, or 128 plus a signal's number if that signal ended " +
		"it. It is 124 if the lock was lost and the command was ended. If nothing was run, the " +
		"status says why: 75 if another client holds the lock, 69 if the proxy or its Redis " +
		"cannot be reached, 125 if the request was refused, 126 if the command cannot be " +
		"executed, 127 if it does not exist. With --once, 75 can also mean that a run has " +
		"already succeeded. " +
		"While the proxy is restarted or replaced, run asks again for the rest of --wait. " +
		"For FENCE, the command's environment has LOCKPROXY_KEY, the first key, and LOCKPROXY_TOKEN."
}

// usageStatus is the exit status if the command line makes no sense.
func (c *runCommand) usageStatus() int { return exitRunFailed }

func (c *runCommand) check() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	} else if len(c.Command) > 0 && strings.HasPrefix(c.Command[0], "-") {
		return fmt.Errorf("unknown flag %s; see lockproxy run --help", c.Command[0])
	}
	if len(c.Command) == 0 {
		return errors.New("no command to run; see lockproxy run --help")
	}
	if len(c.Key) > 1 && (c.Shared || c.Limit > 0 || c.Max != nil) {
		return errors.New("--shared, --limit and --max are for one --key")
	}
	c.within = connectWithin
	return c.parse()
}

// names are the keys for messages.
func (c *runCommand) names() string { return fmt.Sprintf("%q", strings.Join(c.Key, " ")) }

func (c *runCommand) execute(stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, c.forwarded()...)
	defer signal.Stop(signals)
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "lockproxy run: "+format+"\n", args...)
	}

	c.owner = ownerName(c.Command[0])
	conn, token, lease, status := c.acquire(signals, say)
	if conn == nil {
		return status
	}
	defer conn.close()
	began := time.Now()
	work := &child{group: !c.Foreground}
	env := append(os.Environ(), "LOCKPROXY_KEY="+c.Key[0], "LOCKPROXY_TOKEN="+
		strconv.FormatInt(token, 10), c.heldVariable(token))
	if err := work.start(c.Command, env, stdout, stderr); err != nil {
		c.release(conn, token)
		say("cannot run %s: %v", c.Command[0], err)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return exitNotFound
		}
		return exitNotExecutable
	}
	watch := &watch{run: c, conn: conn, token: token, lease: lease, child: work, signals: signals,
		pinged: time.Now()}
	if lost := watch.untilEnd(say); lost {
		return exitLost
	}
	if work.status() == 0 && c.restOfOnce(began) > 0 {
		return c.keep(conn, token, began, signals, say)
	}
	if released := c.release(conn, token); !released {
		say("the lock %s (token %d) had been lost before the command ended, with status %d",
			c.names(), token, work.status())
		return exitLost
	}
	return work.status()
}

// forwarded are the signals that go to the command: not those that this process ignores, as under
// nohup.
func (c *runCommand) forwarded() (list []os.Signal) {
	all := []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2}
	for _, sig := range all {
		if !signal.Ignored(sig) {
			list = append(list, sig)
		}
	}
	return list
}

// relocks are the requests that let the locks run on.
func (c *runCommand) relocks(token int64) (list [][]string) {
	for _, key := range c.Key {
		list = append(list, []string{
			"RELOCK", key, strconv.FormatInt(token, 10), c.Timeout.decimal()})
	}
	return list
}

// releaseWithin bounds the last request: when it isn't answered, closing the connection releases
// the lock.
const releaseWithin = 2 * time.Second

// release frees the lock. It is false if the lock was no longer held.
func (c *runCommand) release(conn *sessionConn, token int64) bool {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	args := append([]string{"UNLOCKALL", strconv.FormatInt(token, 10), strconv.Itoa(len(c.Key))},
		c.Key...)
	if len(c.Key) == 1 {
		args = []string{"UNLOCK", c.Key[0], strconv.FormatInt(token, 10)}
	}
	freed, err := conn.ask(ctx, args...)
	return err != nil || freed.Int == int64(len(c.Key))
}
