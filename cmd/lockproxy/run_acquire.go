package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/survey"
)

// acquire connects and takes the lock. Without it conn is nil and status says why.
func (c *runCommand) acquire(
	signals <-chan os.Signal, say func(string, ...any),
) (conn *sessionConn, token int64, l lease, status int) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := onSignal(signals, cancel)
	conn, err := c.askUntilAnswered(ctx, question{c.Wait, isAway,
		func(ctx context.Context, conn *sessionConn, a *asking) (err error) {
			token, l, err = c.lock(ctx, conn, a)
			return err
		}}, say)
	stop() // a signal that comes from here on is the command's
	var ended signalled
	if err == nil && token != 0 && !errors.As(context.Cause(ctx), &ended) {
		return conn, token, l, 0
	}
	why := ""
	if conn != nil {
		if token == 0 {
			why = c.refusedBy(ctx, conn)
		}
		conn.close()
	}
	switch {
	case errors.As(context.Cause(ctx), &ended):
		return nil, 0, l, exitSignal + int(ended)
	case err == nil:
		if !c.Quiet {
			say("%s: %s was not run", why, c.Command[0])
		}
		return nil, 0, l, c.ConflictExitCode
	}
	say("cannot get the lock %s: %v; %s was not run", c.names(), err, c.Command[0])
	var refused refusal
	if errors.As(err, &refused) && !refused.unavailable() {
		return nil, 0, l, exitRunFailed
	}
	return nil, 0, l, exitUnreachable
}

// question is what a run asks the proxy, again if that is safe and can help.
type question struct {
	wait  *seconds         // --wait, if the question waits for the lock
	again func(error) bool // whether it is asked again after an error
	ask   func(context.Context, *sessionConn, *asking) error
}

// askUntilAnswered connects and asks, again if the proxy ends or is replaced meanwhile, for the
// rest of the wait. Asking again is safe: a LOCK whose wait was ended has had no effect, and the
// proxy releases a session lock that it gave to a connection that has ended. If it cannot, because
// it was killed, the lock is given to its owner again, under the same token.
func (c *runCommand) askUntilAnswered(
	ctx context.Context, q question, say func(string, ...any),
) (conn *sessionConn, err error) {
	told := false
	for a := newAsking(c.within, q.wait, time.Now()); ; {
		conn, err = c.connect(ctx, a)
		if err == nil {
			a.reached(time.Now())
			told = false
			if err = q.ask(ctx, conn, a); err == nil {
				return conn, nil
			}
			conn.close()
		}
		pause, again := a.failed(time.Now())
		if !q.again(err) || !again || ctx.Err() != nil {
			return nil, err
		}
		var unreached *unreached
		if errors.As(err, &unreached) && !told && !c.Quiet {
			say("%v; trying again for %v", err, time.Until(a.connectBy()).Round(time.Second))
			told = true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
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
	ctx context.Context, conn *sessionConn, a *asking,
) (token int64, l lease, err error) {
	if by := a.answerBy(time.Now()); !by.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	if err := c.refuseNested(ctx, conn); err != nil {
		return 0, l, err
	}
	if err := c.refuseLongOnce(ctx, conn); err != nil {
		return 0, l, err
	}
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
	args = c.named(args...)
	asked := time.Now()
	if c.Wait != nil {
		rest := a.rest(asked)
		args = append(args, "WAIT", rest.decimal())
	}
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
			return 0, l, errors.New("the lock was lost as soon as it was acquired")
		}
	}
	l.renewed(asked)
	return reply.Int, l, nil
}

// named adds to a command that takes a lock who takes it, and why.
func (c *runCommand) named(args ...string) []string {
	args = append(args, "OWNER", c.owner)
	if c.Note != "" {
		args = append(args, "NOTE", c.Note)
	}
	return args
}

// refusedBy says who has the lock, as far as that can be known.
func (c *runCommand) refusedBy(ctx context.Context, conn *sessionConn) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	held := "another client holds the lock " + c.names()
	if len(c.Key) > 1 {
		return held // which of them?
	}
	info, err := conn.ask(ctx, "LOCKINFO", c.Key[0])
	if err != nil {
		return held
	}
	fields := infoFields(info)
	holder := survey.Printable(fields["client"]) // any text can be in the record
	if fields["owner"] != "" {
		holder = fmt.Sprintf("%q at %s", fields["owner"], holder)
	}
	if fields["note"] != "" {
		holder += fmt.Sprintf(": %q", fields["note"])
	}
	if holder != "" {
		holder = " (" + holder + ")"
	}
	if c.Once != nil && fields["session"] == "0" {
		ms, _ := strconv.ParseInt(fields["remaining_ms"], 10, 64)
		rest := (time.Duration(ms) * time.Millisecond).Round(time.Second)
		if rest > time.Hour {
			rest = rest.Round(time.Minute)
		}
		return fmt.Sprintf("the lock %s is kept for another %v, as after a run that has succeeded%s",
			c.names(), rest, holder)
	}
	return held + holder
}

// infoFields are those of a map that LOCKINFO has answered, numbers as texts.
func infoFields(info resp.Value) map[string]string {
	fields := map[string]string{}
	for i := 0; i+1 < len(info.Elems); i += 2 {
		value := info.Elems[i+1]
		fields[string(info.Elems[i].Text)] = string(value.Text)
		if value.Type == ':' {
			fields[string(info.Elems[i].Text)] = strconv.FormatInt(value.Int, 10)
		}
	}
	return fields
}
