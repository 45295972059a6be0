package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// restOfOnce is how much of --once is left for a command that began then; 0 without --once.
func (c *runCommand) restOfOnce(began time.Time) time.Duration {
	if c.Once == nil {
		return 0
	}
	return max(time.Duration(*c.Once)-time.Since(began), 0)
}

// refuseLongOnce fails if --once is longer than the proxy lets a lock last: after the command that
// would be too late. RELOCK says so, and does nothing for a token that no lock has.
func (c *runCommand) refuseLongOnce(ctx context.Context, conn *sessionConn) error {
	if c.Once == nil {
		return nil
	}
	_, err := conn.ask(ctx, "RELOCK", c.Key[0], "1", c.Once.decimal())
	if err != nil {
		return fmt.Errorf("--once: %w", err)
	}
	return nil
}

// keep lets the locks last until --once after the command began, since it has succeeded, and
// returns the exit status. LOCK by the same owner without SESSION leaves a lock to its timeout, and
// RELOCK shortens that. Both can be asked again when an answer was lost.
func (c *runCommand) keep(
	conn *sessionConn, token int64, began time.Time, signals <-chan os.Signal,
	say func(string, ...any),
) (status int) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer onSignal(signals, cancel)()
	kept := false
	ask := func(ctx context.Context, conn *sessionConn, a *asking) (err error) {
		ctx, cancel := context.WithDeadline(ctx, a.answerBy(time.Now()))
		defer cancel()
		kept, err = c.leave(ctx, conn, token, began)
		return err
	}
	err := ask(ctx, conn, newAsking(releaseWithin, nil, time.Now()))
	if err != nil {
		var again *sessionConn
		again, err = c.askUntilAnswered(ctx, question{nil, canPass, ask}, say)
		if err == nil {
			again.close()
		}
	}
	switch {
	case err != nil:
		say("%s has succeeded, but the lock %s is not kept for --once: %v", c.Command[0],
			c.names(), err)
	case !kept:
		say("the lock %s (token %d) had been lost before it was kept for --once", c.names(), token)
	default:
		return 0
	}
	return exitLost
}

// leave leaves the locks to their timeout, which is the rest of --once. It is false if the token no
// longer holds one of them; then nobody else has that lock for the rest either, or another has it.
func (c *runCommand) leave(
	ctx context.Context, conn *sessionConn, token int64, began time.Time,
) (held bool, err error) {
	held = true
	for _, key := range c.Key {
		rest := seconds(max(c.restOfOnce(began), time.Millisecond))
		reply, err := conn.ask(ctx, c.named("LOCK", key, rest.decimal())...)
		if err == nil && reply.Int == token {
			reply, err = conn.ask(ctx, "RELOCK", key, strconv.FormatInt(token, 10), rest.decimal())
			held = held && reply.Int == 1
		} else {
			held = false
		}
		if err != nil {
			return false, err
		}
	}
	return held, nil
}

// canPass reports whether asking again can help: all but a refusal by a Redis that serves.
func canPass(err error) bool {
	var refused refusal
	return !errors.As(err, &refused) || refused.unavailable()
}
