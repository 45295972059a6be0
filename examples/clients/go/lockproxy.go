// Package lockproxy takes locks of lockproxy with go-redis: copy this file into your program.
//
//	err := lockproxy.Do(ctx, rdb, "report", lockproxy.Options{Wait: 5 * time.Second},
//		func(ctx context.Context, held *lockproxy.Held) error { // ctx ends if the lock is lost
//			return held.Fence(ctx, "SET", "report:state", "done").Err()
//		})
package lockproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrNotAcquired says that another client holds the lock, or still held it when the wait ended.
	ErrNotAcquired = errors.New("lockproxy: another client holds the lock")
	// ErrLost says that the lock was lost while work ran: another client can hold it.
	ErrLost = errors.New("lockproxy: the lock was lost")
)

// WaitForever is a Wait without end.
const WaitForever = time.Duration(-1)

// Options of a lock.
type Options struct {
	Timeout time.Duration // how long a crashed proxy can leave the lock behind; 0 is 10 s
	Wait    time.Duration // 0 doesn't wait
	Owner   string        // "" is none
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

// Do runs work under a lock, which lasts until work returns, or until the program dies. The context
// of work is cancelled with the cause ErrLost as soon as the lock is lost; then Do returns ErrLost,
// joined with the error of work. The lock has a separate connection, made like those of rdb.
func Do(ctx context.Context, rdb *redis.Client, key string, o Options,
	work func(context.Context, *Held) error) (err error) {
	session := dial(rdb, o.Wait)
	defer session.Close() // which also releases the lock
	// go-redis waits for the reply, whatever ctx says
	waiting := context.AfterFunc(ctx, func() { session.Close() })
	token, err := session.Do(ctx, o.command(key)...).Int64()
	if !waiting() {
		return ctx.Err()
	}
	if errors.Is(err, redis.Nil) {
		return ErrNotAcquired
	}
	if err != nil {
		return err
	}
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := session.watch(func() { cancel(ErrLost) })
	defer func() { // also when work panics
		if lost := stop(); lost || session.unlock(key, token) != 1 {
			err = errors.Join(ErrLost, err)
		}
	}()
	return work(working, &Held{Key: key, Token: token, rdb: rdb})
}

func (o Options) command(key string) []any {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	command := []any{"LOCK", key, o.Timeout.Seconds(), "SESSION"}
	if o.Wait != 0 {
		command = append(command, "WAIT", max(o.Wait, 0).Seconds())
	}
	if o.Owner != "" {
		command = append(command, "OWNER", o.Owner)
	}
	return command
}

// session is the connection of one lock.
type session struct {
	*redis.Client
	raw net.Conn // below go-redis
}

func dial(rdb *redis.Client, wait time.Duration) *session {
	o := *rdb.Options()
	o.PoolSize, o.MinIdleConns = 1, 0
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, 0
	o.MaxRetries = -1 // a second LOCK would be refused by the first, or queue behind it
	o.ContextTimeoutEnabled = true
	o.Protocol = 2 // nothing but the connection's end comes while the lock is held
	o.ReadTimeout = wait + 10*time.Second
	if wait < 0 {
		o.ReadTimeout = -1
	}
	s, dialer := &session{}, o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (nc net.Conn, err error) {
		s.raw, err = dialer(ctx, network, addr)
		return s.raw, err
	}
	s.Client = redis.NewClient(&o)
	return s
}

// watch calls lost if the connection closes before stop is called, which reports it too.
func (s *session) watch(lost func()) (stop func() bool) {
	s.raw.SetReadDeadline(time.Time{})
	ended := make(chan bool, 1)
	go func() { // ends with the connection, or by stop, which waits for it
		_, err := s.raw.Read(make([]byte, 1))
		var timeout net.Error
		isLost := !errors.As(err, &timeout) || !timeout.Timeout()
		if isLost {
			lost()
		}
		ended <- isLost
	}()
	return func() bool {
		s.raw.SetReadDeadline(time.Unix(1, 0))
		return <-ended
	}
}

// unlock returns UNLOCK's reply, or 0 if there is none.
func (s *session) unlock(key string, token int64) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	released, _ := s.Do(ctx, "UNLOCK", key, token).Int64()
	return released
}
