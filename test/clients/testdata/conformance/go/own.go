package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/redis/go-redis/v9"

	lockproxy "lockproxy/clients/go"
)

func own() {
	panics()
	errorsOfRedis()
	whileTheClientConnects()
}

func nothing(context.Context, *lockproxy.Held) error { return nil }

func check(what string, ok bool) {
	if !ok {
		fmt.Println("FAIL", what)
		os.Exit(1)
	}
}

func panics() {
	func() {
		defer func() { recover() }()
		lockproxy.Do(context.Background(), rdb, "panics", lockproxy.Options{},
			func(context.Context, *lockproxy.Held) error { panic("mine") })
	}()
	err := lockproxy.TryDo(context.Background(), rdb, "panics", lockproxy.Options{}, nothing)
	check(fmt.Sprint("after a panic of work: ", err), err == nil)
}

// errorsOfRedis: what the proxy says is an error of Redis.
func errorsOfRedis() {
	var refused redis.Error
	err := lockproxy.Do(context.Background(), rdb, "refused", lockproxy.Options{Timeout: -1}, nothing)
	check(fmt.Sprint("the error ", err), errors.As(err, &refused) &&
		strings.HasPrefix(err.Error(), "ERR timeout"))
}

// refused is a connection on which the answer to go-redis's last question as it connects is held
// back: lockproxy does not know MAINT_NOTIFICATIONS, which go-redis then notes in its options.
type refused struct {
	net.Conn
	asked, answer chan struct{}
}

func (c *refused) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "maint_notifications") {
		close(c.asked)
	}
	return c.Conn.Write(b)
}

func (c *refused) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.asked:
		<-c.answer
	default:
	}
	return n, err
}

// whileTheClientConnects: the race detector judges what Do reads of a client whose first connection is
// being made.
func whileTheClientConnects() {
	addr := rdb.Options().Addr
	first := &refused{asked: make(chan struct{}), answer: make(chan struct{})}
	fresh := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (
		nc net.Conn, err error,
	) {
		if nc, err = net.Dial("tcp", addr); first.Conn == nil {
			first.Conn = nc
			return first, err
		}
		return nc, err
	}})
	pinged := make(chan error, 1)
	go func() { pinged <- fresh.Ping(context.Background()).Err() }()
	<-first.asked
	close(first.answer)
	for range 100_000 { // the Ping goes on; waiting for it would hide a race from the detector
		runtime.Gosched()
	}
	err := lockproxy.Do(context.Background(), fresh, "connects", lockproxy.Options{}, nothing)
	err = errors.Join(err, <-pinged)
	check(fmt.Sprint(err), err == nil)
}
