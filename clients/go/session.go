package lockproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// session is the connection of one lock: go-redis opens it and logs in, and is not used for it from
// then on. Replies come in the order of the requests: single lines, or a value.
type session struct {
	opened  *redis.Client
	raw     net.Conn
	ended   context.Context // ends with the connection
	since   time.Time
	reading sync.WaitGroup
	pinging *time.Timer

	mu   sync.Mutex
	owed []chan string // of the requests that are not answered; nil for a ping
	most time.Duration // how long that may take; 0 is for as long as it takes
	last time.Time     // when the last reply came, or the first of owed was asked for
}

func dial(ctx context.Context, rdb *redis.Client) (*session, error) {
	o := *rdb.Options()
	o.PoolSize, o.MinIdleConns, o.MaxRetries = 1, 0, -1
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, 0
	o.ContextTimeoutEnabled = true
	o.Protocol = 2 // nothing but replies comes
	// That of rdb changes while rdb connects.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	s, dialer := &session{since: time.Now()}, o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (nc net.Conn, err error) {
		s.raw, err = dialer(ctx, network, addr)
		return s.raw, err
	}
	loggedIn, connected := false, o.OnConnect
	o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		loggedIn = true
		if connected == nil {
			return nil
		}
		return connected(ctx, conn)
	}
	s.opened = redis.NewClient(&o)
	var refused redis.Error // of the PING, which a user who may lock may not send, say
	err := s.opened.Ping(ctx).Err()
	if err != nil && !(loggedIn && errors.As(err, &refused)) {
		s.opened.Close()
		return nil, err
	}
	s.raw.SetDeadline(time.Time{})
	ended, end := context.WithCancel(context.Background())
	s.ended = ended
	s.reading.Go(func() { s.read(end) }) // ends with the connection; close waits for it
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinging = time.AfterFunc(pingEvery, s.ping)
	return s, nil
}

// close also ends the pings, and what reads.
func (s *session) close() {
	s.raw.Close()
	s.opened.Close()
	s.reading.Wait()
}

func (s *session) read(end func()) {
	defer end()
	for in := bufio.NewReader(s.raw); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\r\n")
		if size, err := strconv.Atoi(strings.TrimPrefix(line, "$")); line[:1] == "$" && size >= 0 {
			value := make([]byte, size+len("\r\n"))
			if _, err = io.ReadFull(in, value); err != nil {
				return
			}
			line = "=" + string(value[:size])
		}
		s.mu.Lock()
		if len(s.owed) == 0 {
			s.mu.Unlock()
			return // nobody has asked: what comes has no meaning
		}
		reply := s.owed[0]
		s.owed, s.last = s.owed[1:], time.Now()
		s.mu.Unlock()
		if reply != nil {
			reply <- line
		}
	}
}

// ping also runs while LOCK waits: its answer comes behind. It ends with the connection.
func (s *session) ping() {
	s.mu.Lock()
	late := s.most > 0 && len(s.owed) > 0 && time.Since(s.last) > s.most
	s.mu.Unlock()
	if late || s.ended.Err() != nil || s.send(nil, "PING") != nil {
		s.raw.Close() // the lock can be lost
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	every := pingEvery
	if s.most == 0 { // the proxy keeps the pings of a long wait
		every = min(max(time.Since(s.since)/60, pingEvery), 15*time.Second)
	}
	s.pinging.Reset(every)
}

// mustAnswerWithin says for how long the proxy can be silent, from now on.
func (s *session) mustAnswerWithin(most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most, s.last = most, time.Now()
}

func (s *session) send(reply chan string, words ...string) error {
	request := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(word), word)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owed) == 0 {
		s.last = time.Now()
	}
	s.owed = append(s.owed, reply)
	s.raw.SetWriteDeadline(time.Now().Add(answerWithin))
	_, err := s.raw.Write(request)
	return err
}

// ask returns the reply's line, or "=" and the value.
func (s *session) ask(ctx context.Context, words ...string) (string, error) {
	reply := make(chan string, 1)
	if err := s.send(reply, words...); err != nil {
		return "", err
	}
	select {
	case line := <-reply:
		return line, nil
	case <-s.ended.Done():
		return "", errors.New("lockproxy: the connection was closed")
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// replyError is an error reply.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (e replyError) RedisError() {}

// acquire returns the reply to LOCK or ONCE: a token's line, or "=" and a value.
func (s *session) acquire(ctx context.Context, r request, name, key string, more ...string) (
	string, error) {
	waiting := ctx
	if !r.waits || r.Wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, r.Wait+answerWithin,
			errors.New("lockproxy does not answer"))
		defer cancel()
	}
	line, err := s.ask(waiting, r.command(name, key, more...)...)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", err
	case strings.HasPrefix(line, "-ERR unknown command"):
		return "", replyError("this is a Redis, not lockproxy: connect to lockproxy's port, " +
			"6380 by default")
	case strings.HasPrefix(line, "-"):
		return "", replyError(line[1:])
	case line == "$-1":
		return "", ErrNotAcquired
	}
	s.mustAnswerWithin(max(r.Timeout, answerWithin))
	return line, nil
}

// end returns the reply to UNLOCK or DONE, or "" if there is none.
func (s *session) end(name, key string, token int64, more ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), unlockWithin)
	defer cancel()
	line, _ := s.ask(ctx, append([]string{name, key, strconv.FormatInt(token, 10)}, more...)...)
	return line
}
