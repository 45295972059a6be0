// Package lockproxy takes locks of lockproxy with go-redis.
//
//	err := lockproxy.Do(ctx, rdb, "report", lockproxy.Options{Wait: 5 * time.Second},
//		func(ctx context.Context, held *lockproxy.Held) error { // ctx ends if the lock is lost
//			return held.Fence(ctx, "SET", "report:state", "done").Err()
//		})
//
// Once makes a value once for all who ask for it.
package lockproxy

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrNotAcquired says that another client holds the lock, or still held it when the wait ended.
	ErrNotAcquired = errors.New("lockproxy: another client holds the lock")
	// ErrLost says that the lock was lost while work ran: another client can hold it.
	ErrLost = errors.New("lockproxy: the lock was lost")
)

// FenceQuery is what Held.FenceSQL runs, for drivers that are not database/sql's: its arguments are
// the lock's key and token.
const FenceQuery = "SELECT lockproxy_fence($1, $2)"

const (
	pingEvery    = time.Second // balancers cut connections on which nothing moves
	answerWithin = 10 * time.Second
	unlockWithin = 5 * time.Second
	awayWithin   = 30 * time.Second // a proxy that is being restarted or replaced is back by then
)

// Options of a lock.
type Options struct {
	Timeout time.Duration // how long a crashed proxy can leave the lock behind; 0 is 10 s
	Wait    time.Duration // how long Do waits at most; 0 is forever, or until its context ends
	Max     time.Duration // how long the lock is held at most, also if work hangs; 0 is forever
	Owner   string        // who holds it, for people; "" is this program, its host and its process
	Note    string        // why, for people, in at most 256 bytes
}

// Held is a lock that is held.
type Held struct {
	Key   string
	Token int64 // rises with every acquisition: it fences other databases too

	rdb *redis.Client
}

// Fence runs a command in Redis only if the lock is still held; otherwise its error is ErrLost.
func (h *Held) Fence(ctx context.Context, command ...any) *redis.Cmd {
	cmd := h.rdb.Do(ctx, append([]any{"FENCE", h.Key, h.Token}, command...)...)
	if redis.HasErrorPrefix(cmd.Err(), "FENCED") {
		cmd.SetErr(fmt.Errorf("%w: %w", ErrLost, cmd.Err()))
	}
	return cmd
}

// FenceSQL begins what a transaction of PostgreSQL writes under the lock. If a later holder has begun
// to write already, the error is ErrLost, and the transaction can only be rolled back. Until it ends,
// a later holder waits here.
func (h *Held) FenceSQL(ctx context.Context, tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}) error {
	_, err := tx.ExecContext(ctx, FenceQuery, h.Key, h.Token)
	var refused interface{ SQLState() string }
	if errors.As(err, &refused) && refused.SQLState() == "LP001" {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// Extend sets a new timeout. It bounds how long a crashed proxy can leave the lock behind.
func (h *Held) Extend(ctx context.Context, timeout time.Duration) error {
	n, err := h.rdb.Do(ctx, "RELOCK", h.Key, h.Token, seconds(timeout)).Int64()
	if err == nil && n != 1 {
		err = ErrLost
	}
	return err
}

// Do waits for a lock and runs work under it. The lock lasts until work returns, or until the program
// dies. The context of work is cancelled with the cause ErrLost as soon as the lock is lost; then Do
// returns ErrLost, joined with the error of work. The lock has a separate connection, made like those
// of rdb. If another client still holds it at the end of the wait, the error is ErrNotAcquired.
func Do(ctx context.Context, rdb *redis.Client, key string, o Options,
	work func(context.Context, *Held) error) error {
	return do(ctx, rdb, key, o.request(true), work)
}

// TryDo is Do without the wait: the error is ErrNotAcquired at once if another client holds the lock.
func TryDo(ctx context.Context, rdb *redis.Client, key string, o Options,
	work func(context.Context, *Held) error) error {
	return do(ctx, rdb, key, o.request(false), work)
}

func do(ctx context.Context, rdb *redis.Client, key string, r request,
	work func(context.Context, *Held) error) (err error) {
	s, reply, err := ask(ctx, rdb, r, "LOCK", key)
	if err != nil {
		return err
	}
	defer s.close() // which also releases the lock
	token, err := strconv.ParseInt(strings.TrimPrefix(reply, ":"), 10, 64)
	if err != nil {
		return err
	}
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := context.AfterFunc(s.ended, func() { cancel(ErrLost) })
	defer func() { // also when work panics
		if !lost() || s.end("UNLOCK", key, token) != ":1" {
			err = errors.Join(ErrLost, err)
		}
	}()
	return work(working, &Held{Key: key, Token: token, rdb: rdb})
}

// request is what LOCK and ONCE are asked for.
type request struct {
	Options
	waits bool
}

func (o Options) request(waits bool) request {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Owner = cmp.Or(o.Owner, myName())
	return request{o, waits}
}

// command is LOCK or ONCE with what both take.
func (r request) command(name, key string, more ...string) []string {
	command := append([]string{name, key, seconds(r.Timeout)}, more...)
	command = append(command, "SESSION")
	if r.Max != 0 {
		command = append(command, "MAX", seconds(r.Max))
	}
	if r.waits {
		command = append(command, "WAIT", seconds(r.Wait))
	}
	if r.Note != "" {
		command = append(command, "NOTE", r.Note)
	}
	return append(command, "OWNER", r.Owner)
}

// ask asks by a new connection, which it returns with the reply to LOCK or ONCE: a token's line, or
// "=" and a value. If the proxy is restarted or replaced meanwhile, it asks again for the rest of
// the wait, by the same owner. A command whose wait was ended has had no effect; a lock whose
// connection is lost is released, or given to its owner again.
func ask(ctx context.Context, rdb *redis.Client, r request, name, key string, more ...string) (
	s *session, reply string, err error) {
	wait, began := r.Wait, time.Now()
	for away := began; ; {
		asked := time.Time{}
		if s, err = dial(ctx, rdb); err == nil {
			asked = time.Now()
			if reply, err = s.acquire(ctx, r, name, key, more...); err == nil {
				return s, reply, nil
			}
			s.close()
		}
		if !asked.IsZero() && time.Since(asked) > answerWithin {
			away = time.Now() // it has been there meanwhile
		}
		left := time.Until(away.Add(awayWithin))
		if wait > 0 {
			left = min(left, time.Until(began.Add(wait)))
		}
		if !r.waits || left <= 0 || !isAway(err) || ctx.Err() != nil {
			return nil, "", err
		}
		pause := time.Second/20 + rand.N(time.Second/2) // not all who wait at once
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
		if wait > 0 {
			rest := time.Until(began.Add(wait)).Truncate(time.Millisecond)
			r.Wait = max(rest, time.Millisecond)
		}
	}
}

// isAway reports whether the proxy has ended a wait, or cannot be reached.
func isAway(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		return redis.HasErrorPrefix(err, "TRYAGAIN")
	}
	return !errors.Is(err, ErrNotAcquired)
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// myName says which program this is. The random part is this lock's: owners share theirs.
func myName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s@%s:%d:%08x", filepath.Base(os.Args[0]), host, os.Getpid(), rand.Uint32())
}
