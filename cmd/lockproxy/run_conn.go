package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// connectWithin bounds connecting and logging in to the proxy, with finding out why that fails. All
// jobs of cron start at the same moment, so their machine can be busy for a while; and a proxy that
// is being restarted is back by then.
const connectWithin = 30 * time.Second

// writeWithin bounds writing a request.
const writeWithin = 5 * time.Second

// lossBound is for how long the proxy's machine can acknowledge nothing before it counts as lost.
const lossBound = 25 * time.Second

// sessionConn is the connection to a lockproxy that a session lock lives on. Messages of the proxy
// are read at once. One goroutine uses it.
type sessionConn struct {
	nc      net.Conn
	events  chan event    // closed when the connection has ended, after the event that says why
	closing chan struct{} // closed by close: no event is wanted any more
	sent    []string      // commands whose replies haven't been taken, in order
}

// event is a reply, a push, or with err the end of the connection.
type event struct {
	value resp.Value
	err   error
}

func (e event) isPush() bool { return e.err == nil && e.value.Type == '>' }

// refusal is an error that the proxy or its Redis has answered.
type refusal string

func (r refusal) Error() string {
	if strings.HasPrefix(string(r), "ERR unknown command") {
		return "this is a Redis, not lockproxy: connect to lockproxy's port, 6380 by default"
	}
	return string(r)
}

// unavailable reports whether trying again later can help.
func (r refusal) unavailable() bool {
	code, _, _ := strings.Cut(string(r), " ")
	switch code {
	case "UPSTREAM", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "READONLY", "TRYAGAIN",
		"BUSY":
		return true
	}
	return strings.HasPrefix(string(r), "ERR max number of clients")
}

// unreached says why there is no connection to the proxy.
type unreached struct {
	error
	lasting bool // it is known what must be changed for that
}

func (e *unreached) Unwrap() error { return e.error }

// errConnectionLost is how a connection that was there has ended.
var errConnectionLost = errors.New("the connection to the proxy was lost")

// isAway reports whether a proxy may be asked again because the one that was asked is gone.
func isAway(err error) bool {
	var refused refusal
	var unreached *unreached
	switch {
	case errors.As(err, &refused):
		return strings.HasPrefix(string(refused), "TRYAGAIN ")
	case errors.As(err, &unreached):
		return !unreached.lasting
	}
	return errors.Is(err, errConnectionLost)
}

// connect opens a connection that is logged in as the URL says. In RESP3 a lost lock is pushed; a
// proxy whose Redis or user doesn't allow HELLO closes the connection instead.
func (c *runCommand) connect(parent context.Context, a *asking) (*sessionConn, error) {
	ctx, cancel := context.WithDeadline(parent, a.connectBy())
	defer cancel()
	cfg, err := c.tls()
	if err != nil {
		return nil, refusal(err.Error()) // trying again won't help
	}
	c.proxy.SetTLS(cfg)
	c.proxy.LossBound = lossBound
	as := upstream.Setup{Identity: c.proxy.Initial}
	as.Proto = 3
	nc, err := c.proxy.Dial(ctx, as)
	var refused *upstream.Refused
	if errors.As(err, &refused) && refused.Step == "HELLO" &&
		!refusal(refused.Reply).unavailable() {
		as.Proto = 2
		nc, err = c.proxy.Dial(ctx, as)
	}
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Errorf("%s: %w", refused.Step, refusal(refused.Reply))
	case err != nil:
		looking, cancel := context.WithTimeout(parent, a.explainWithin())
		defer cancel()
		err, known := c.explain(looking, errors.Unwrap(err))
		if !errors.Is(err, errSilent) {
			err = fmt.Errorf("cannot reach the proxy that --url names: %w", err)
		}
		return nil, &unreached{err, known && !a.met}
	}
	conn := &sessionConn{nc: nc, events: make(chan event), closing: make(chan struct{})}
	go conn.read() // ends when the connection does; close waits for it
	return conn, nil
}

// send writes a request without waiting for its reply, which comes as an event.
func (s *sessionConn) send(args ...string) error {
	s.nc.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := s.nc.Write(resp.AppendCommand(nil, args...)); err != nil {
		return fmt.Errorf("%w: %w", errConnectionLost, err)
	}
	s.sent = append(s.sent, args[0])
	return nil
}

// answered returns which command a reply is to.
func (s *sessionConn) answered() (command string) {
	if len(s.sent) > 0 { // who else sends replies is no lockproxy
		command, s.sent = s.sent[0], s.sent[1:]
	}
	return command
}

// pingEvery is how often something is sent: balancers cut connections on which nothing moves.
const pingEvery = time.Second

// ask sends a request and returns its reply; an error reply is a refusal. Replies to earlier
// requests are dropped. Pings meanwhile are answered behind it: a proxy keeps those of a long wait,
// so they get fewer.
func (s *sessionConn) ask(ctx context.Context, args ...string) (resp.Value, error) {
	if err := s.send(args...); err != nil {
		return resp.Value{}, err
	}
	awaited, asked := len(s.sent), time.Now()
	ping := time.NewTimer(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ping.C:
			if err := s.send("PING"); err != nil {
				return resp.Value{}, err
			}
			ping.Reset(min(max(time.Since(asked)/60, pingEvery), 15*pingEvery))
		case ev, open := <-s.events:
			switch {
			case !open:
				return resp.Value{}, errConnectionLost
			case ev.err != nil:
				return resp.Value{}, ev.err
			case ev.isPush():
				continue
			}
			s.answered()
			if awaited--; awaited > 0 {
				continue
			}
			if ev.value.IsError() {
				return resp.Value{}, refusal(ev.value.Text)
			}
			return ev.value, nil
		case <-ctx.Done():
			return resp.Value{}, fmt.Errorf("the proxy doesn't answer %s: %w", args[0],
				context.Cause(ctx))
		}
	}
}

// maxReply bounds a reply, bytes: a lockproxy's are shorter, also that of all holders of a lock.
const maxReply = 4 << 20

// read turns the proxy's messages into events.
func (s *sessionConn) read() {
	defer close(s.events)
	var scan resp.Scanner
	var reply []byte
	buf := make([]byte, 4096)
	for {
		n, err := s.nc.Read(buf)
		for rest := buf[:n]; len(rest) > 0 && err == nil; {
			var used int
			var whole bool
			used, whole, err = scan.Scan(rest)
			reply = append(reply, rest[:used]...)
			rest = rest[used:]
			if len(reply) > maxReply && err == nil {
				err = errors.New("the reply has more than 4 MB: check that --url names a " +
					"lockproxy")
			}
			if whole && err == nil {
				var value resp.Value
				if value, err = resp.ParseValue(reply); err == nil &&
					!s.deliver(event{value: value}) {
					return
				}
				reply = nil // the value refers to it
			}
		}
		if err != nil {
			s.deliver(event{err: fmt.Errorf("%w: %w", errConnectionLost, err)})
			return
		}
	}
}

// deliver hands an event on; false says that the connection is being closed.
func (s *sessionConn) deliver(ev event) bool {
	select {
	case s.events <- ev:
		return true
	case <-s.closing:
		return false
	}
}

// close ends the connection, and with it the session: whatever it holds is released by the proxy.
func (s *sessionConn) close() {
	close(s.closing)
	s.nc.Close()
	for range s.events { // until read has ended
	}
}

// ownerName identifies this run, for LOCKINFO and for people who wonder why a command waits.
// The random part is what keeps two containers with the same host name and process number apart:
// the same owner would be given the same lock.
func ownerName(command string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var unique [8]byte
	rand.Read(unique[:])
	return fmt.Sprintf("%s:%d:%s:%s", host, os.Getpid(), filepath.Base(command),
		hex.EncodeToString(unique[:]))
}
