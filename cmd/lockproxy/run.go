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
	exitHeld          = 75  // EX_TEMPFAIL: another holds the lock: nothing was run
	exitLost          = 124 // the lock was lost: the command was ended, or had run on without it
	exitRunFailed     = 125 // the request makes no sense, or was refused: nothing was run
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the number of the signal that ended the command
)

// runCommand is lockproxy run: it holds a session lock while a command runs.
type runCommand struct {
	Key       string   `required:"" env:"-" placeholder:"NAME" help:"The lock's key."`
	Timeout   seconds  `env:"-" default:"30" placeholder:"SECONDS" help:"The lock is renewed for as long as the command runs; this is the longest that it stays held if the proxy crashes. If this machine crashes it is as long, but at least 10 and at most 30 seconds, and 3 more (default ${default})."`
	Wait      *seconds `env:"-" placeholder:"SECONDS" help:"Wait in line for this long if another holds the lock; 0 waits without end (default: don't wait)."`
	KillAfter seconds  `env:"-" default:"10" placeholder:"SECONDS" help:"When the lock is lost the command gets SIGTERM at once, and SIGKILL after this long (default ${default})."`

	target

	ConflictExitCode int  `short:"E" env:"-" default:"75" placeholder:"N" help:"Exit status if another holds the lock, 0 to 255 (default ${default})."`
	Foreground       bool `env:"-" help:"Let the command read from the terminal and get its signals. Then it is not in its own process group, and what it has started is not ended with it."`
	Quiet            bool `short:"q" env:"-" help:"Don't say so if another holds the lock."`

	Command []string `arg:"" passthrough:"" help:"The command and its arguments."`
}

// Help is printed below the command's help line.
func (c *runCommand) Help() string {
	return "The command's exit status is passed on, 128 and the signal's number if a signal has " +
		"ended it. 124: the lock was lost, and the command was ended. " +
		"Nothing was run: 75 another holds the lock, 69 the proxy or its Redis can't be reached, " +
		"125 the request was refused, 126 the command can't be executed, 127 it isn't there. " +
		"In the command's environment LOCKPROXY_KEY and LOCKPROXY_TOKEN are for FENCE."
}

// usageStatus is the exit status if the command line makes no sense.
func (c *runCommand) usageStatus() int { return exitRunFailed }

func (c *runCommand) check() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	} else if len(c.Command) > 0 && strings.HasPrefix(c.Command[0], "-") {
		return fmt.Errorf("unknown flag %s; see lockproxy run --help", c.Command[0])
	}
	switch {
	case c.Key == "":
		return errors.New("--key is empty: all jobs with an empty key would share one lock; see " +
			"lockproxy run --help")
	case len(c.Command) == 0:
		return errors.New("no command to run; see lockproxy run --help")
	case c.Timeout <= 0:
		return errors.New("--timeout: want more than 0 seconds")
	case c.ConflictExitCode < 0 || c.ConflictExitCode > 255:
		return fmt.Errorf("--conflict-exit-code is %d: want 0 to 255", c.ConflictExitCode)
	}
	return c.parse()
}

func (c *runCommand) execute(stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, c.forwarded()...)
	defer signal.Stop(signals)
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "lockproxy run: "+format+"\n", args...)
	}

	conn, token, lease, status := c.acquire(signals, say)
	if conn == nil {
		return status
	}
	defer conn.close()
	work := &child{group: !c.Foreground}
	env := append(os.Environ(), "LOCKPROXY_KEY="+c.Key, "LOCKPROXY_TOKEN="+
		strconv.FormatInt(token, 10))
	if err := work.start(c.Command, env, stdout, stderr); err != nil {
		c.release(conn, token)
		say("cannot run %s: %v", c.Command[0], err)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return exitNotFound
		}
		return exitNotExecutable
	}
	watch := &watch{run: c, conn: conn, token: token, lease: lease, child: work, signals: signals}
	if lost := watch.untilEnd(say); lost {
		return exitLost
	}
	if released := c.release(conn, token); !released {
		say("the lock %q (token %d) had been lost before the command ended, with status %d", c.Key,
			token, work.status())
		return exitLost
	}
	return work.status()
}

// forwarded are the signals that go to the command: not those that this process was told to ignore,
// as by nohup.
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

// acquire connects and takes the lock. Without it conn is nil and status says why.
func (c *runCommand) acquire(
	signals <-chan os.Signal, say func(string, ...any),
) (conn *sessionConn, token int64, l lease, status int) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := onSignal(signals, cancel)
	conn, err := c.connect(ctx)
	if err == nil {
		token, l, err = c.lock(ctx, conn)
	}
	stop() // a signal that comes from here on is the command's
	var ended signalled
	if err == nil && token != 0 && !errors.As(context.Cause(ctx), &ended) {
		return conn, token, l, 0
	}
	holder := ""
	if conn != nil && err == nil && token == 0 {
		holder = c.holder(ctx, conn)
	}
	if conn != nil {
		conn.close()
	}
	var refused refusal
	switch {
	case errors.As(context.Cause(ctx), &ended):
		return nil, 0, l, exitSignal + int(ended)
	case err == nil:
		if !c.Quiet {
			say("another holds the lock %q%s: %s was not run", c.Key, holder, c.Command[0])
		}
		return nil, 0, l, c.ConflictExitCode
	case errors.As(err, &refused) && !refused.unavailable():
		say("no lock %q: %v; %s was not run", c.Key, err, c.Command[0])
		return nil, 0, l, exitRunFailed
	}
	say("no lock %q: %v; %s was not run", c.Key, err, c.Command[0])
	return nil, 0, l, exitUnreachable
}

// signalled is the signal that came before the command was started.
type signalled syscall.Signal

func (s signalled) Error() string { return syscall.Signal(s).String() }

// onSignal cancels when a signal comes, until the function that it returns is called.
func onSignal(signals <-chan os.Signal, cancel context.CancelCauseFunc) (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends by stop, which waits for it
		defer close(ended)
		select {
		case sig := <-signals:
			cancel(signalled(sig.(syscall.Signal)))
		case <-stopped:
		}
	}()
	return func() { close(stopped); <-ended }
}

// lock asks for the lock; token 0 says that another holds it. After a wait it is unknown when the
// lock was given, so RELOCK makes the lease one that begins at a known time.
func (c *runCommand) lock(
	ctx context.Context, conn *sessionConn,
) (token int64, l lease, err error) {
	args := []string{"LOCK", c.Key, c.Timeout.decimal(), "SESSION", "OWNER",
		ownerName(c.Command[0])}
	if c.Wait != nil {
		args = append(args, "WAIT", c.Wait.decimal())
	}
	asked := time.Now()
	reply, err := conn.ask(ctx, args...)
	if err != nil || reply.IsNull() {
		return 0, l, err
	}
	l = newLease(time.Duration(c.Timeout), asked)
	if c.Wait == nil {
		return reply.Int, l, nil
	}
	asked = time.Now()
	still, err := conn.ask(ctx, c.relock(reply.Int)...)
	switch {
	case err != nil:
		return 0, l, err
	case still.Int != 1:
		return 0, l, errors.New("it was lost right after it was given")
	}
	l.renewed(asked)
	return reply.Int, l, nil
}

func (c *runCommand) relock(token int64) []string {
	return []string{"RELOCK", c.Key, strconv.FormatInt(token, 10), c.Timeout.decimal()}
}

// holder tells of the lock's holder for the message, or is empty.
func (c *runCommand) holder(ctx context.Context, conn *sessionConn) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, err := conn.ask(ctx, "LOCKINFO", c.Key)
	if err != nil {
		return ""
	}
	fields := map[string]string{}
	for i := 0; i+1 < len(info.Elems); i += 2 {
		fields[string(info.Elems[i].Text)] = string(info.Elems[i+1].Text)
	}
	switch {
	case fields["owner"] != "":
		return fmt.Sprintf(" (%q at %s)", fields["owner"], fields["client"])
	case fields["client"] != "":
		return " (" + fields["client"] + ")"
	}
	return ""
}

// releaseWithin bounds the last request: when it isn't answered, closing the connection releases
// the lock.
const releaseWithin = 2 * time.Second

// release frees the lock. It is false if the lock was held no more.
func (c *runCommand) release(conn *sessionConn, token int64) bool {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	freed, err := conn.ask(ctx, "UNLOCK", c.Key, strconv.FormatInt(token, 10))
	return err != nil || freed.Int == 1
}
