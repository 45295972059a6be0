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

	"lockproxy/internal/survey"
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
	Key       []string `required:"" env:"-" sep:"none" placeholder:"NAME"`
	Shared    bool     `env:"-" xor:"mode"`
	Limit     int      `env:"-" xor:"mode" range:"1 to 10000"`
	Timeout   seconds  `env:"-" default:"30" range:"0.001 to 315360000"`
	Wait      *seconds `env:"-" range:"0 to 315360000"`
	Max       *seconds `env:"-" range:"0.001 to 315360000"`
	KillAfter seconds  `env:"-" default:"10" range:"0 to 86400"`

	target

	ConflictExitCode int  `short:"E" env:"-" default:"75" range:"0 to 255"`
	Foreground       bool `env:"-"`
	Quiet            bool `short:"q" env:"-"`

	Command []string `arg:"" optional:"" passthrough:"" help:"The command and its arguments."`
}

// Help is printed below the command's help line.
func (c *runCommand) Help() string {
	return "The exit status is the command's, or 128 plus the signal's number if a signal has " +
		"ended it. 124: the lock was lost, and the command was ended. " +
		"Nothing was run: 75 another holds the lock, 69 the proxy or its Redis can't be reached, " +
		"125 the request was refused, 126 the command can't be executed, 127 it isn't there. " +
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

	conn, token, lease, status := c.acquire(signals, say)
	if conn == nil {
		return status
	}
	defer conn.close()
	work := &child{group: !c.Foreground}
	env := append(os.Environ(), "LOCKPROXY_KEY="+c.Key[0], "LOCKPROXY_TOKEN="+
		strconv.FormatInt(token, 10))
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
	switch {
	case errors.As(context.Cause(ctx), &ended):
		return nil, 0, l, exitSignal + int(ended)
	case err == nil:
		if !c.Quiet {
			say("another holds the lock %s%s: %s was not run", c.names(), holder, c.Command[0])
		}
		return nil, 0, l, c.ConflictExitCode
	}
	say("no lock %s: %v; %s was not run", c.names(), err, c.Command[0])
	var refused refusal
	if errors.As(err, &refused) && !refused.unavailable() {
		return nil, 0, l, exitRunFailed
	}
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
	args := []string{"LOCK", c.Key[0], c.Timeout.decimal()}
	if len(c.Key) > 1 {
		args = append([]string{"LOCKALL", c.Timeout.decimal(), strconv.Itoa(len(c.Key))}, c.Key...)
	}
	switch {
	case c.Shared:
		args = append(args, "SHARED")
	case c.Limit > 0:
		args = append(args, "LIMIT", strconv.Itoa(c.Limit))
	}
	args = append(args, "SESSION")
	if c.Max != nil {
		args = append(args, "MAX", c.Max.decimal())
	}
	args = append(args, "OWNER", ownerName(c.Command[0]))
	if c.Wait != nil {
		args = append(args, "WAIT", c.Wait.decimal())
	}
	asked := time.Now()
	reply, err := conn.ask(ctx, args...)
	if err != nil || reply.IsNull() {
		return 0, l, err
	}
	l = newLease(time.Duration(c.Timeout), asked)
	if c.Max != nil {
		l.last = asked.Add(time.Duration(*c.Max))
		if c.Wait != nil { // it is not known yet when the lock was given
			l.last = time.Now().Add(time.Duration(*c.Max))
		}
	}
	if c.Wait == nil {
		return reply.Int, l, nil
	}
	asked = time.Now()
	for _, relock := range c.relocks(reply.Int) {
		still, err := conn.ask(ctx, relock...)
		switch {
		case err != nil:
			return 0, l, err
		case still.Int != 1:
			return 0, l, errors.New("it was lost right after it was given")
		}
	}
	l.renewed(asked)
	return reply.Int, l, nil
}

// relocks are the requests that let the locks run on.
func (c *runCommand) relocks(token int64) (list [][]string) {
	for _, key := range c.Key {
		list = append(list, []string{
			"RELOCK", key, strconv.FormatInt(token, 10), c.Timeout.decimal()})
	}
	return list
}

// holder describes the lock's holder for a message; "" if it is unknown.
func (c *runCommand) holder(ctx context.Context, conn *sessionConn) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if len(c.Key) > 1 {
		return "" // of which of them?
	}
	info, err := conn.ask(ctx, "LOCKINFO", c.Key[0])
	if err != nil {
		return ""
	}
	fields := map[string]string{}
	for i := 0; i+1 < len(info.Elems); i += 2 {
		fields[string(info.Elems[i].Text)] = string(info.Elems[i+1].Text)
	}
	client := survey.Printable(fields["client"]) // any text can be in the record
	switch {
	case fields["owner"] != "":
		return fmt.Sprintf(" (%q at %s)", fields["owner"], client)
	case client != "":
		return " (" + client + ")"
	}
	return ""
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
