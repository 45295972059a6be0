// Command redigo uses ordinary commands and locks through lockproxy with redigo (RESP2).
//
// usage: redigo HOST PORT
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const prefix = "client-test:redigo:"

var c, other redis.Conn

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: redigo HOST PORT")
	}
	c, other = connect(), connect()

	step("data", data)
	step("pipeline", pipeline)
	step("transaction", transaction)
	step("pubsub", pubsub)
	step("script", script)
	step("wait-command", func() { checkDo("WAIT", c, int64(0), "WAIT", 0, 100) })
	step("lock", lock)
	step("lock-error", func() {
		_, err := c.Do("LOCK", prefix+"lock", -1)
		check("LOCK with a negative timeout", err, redis.Error(
			`ERR timeout is negative: "-1" (seconds, greater than 0, at most 86400)`))
	})
	step("lock-order", lockOrder)
	step("lock-wait", lockWait)
	step("lock-lost", lockLost)
}

func connect() redis.Conn {
	conn, err := redis.Dial("tcp", net.JoinHostPort(os.Args[1], os.Args[2]),
		redis.DialConnectTimeout(2*time.Minute), redis.DialReadTimeout(2*time.Minute))
	check("connect", err, nil)
	return conn
}

func step(name string, run func()) {
	run()
	fmt.Println("ok", name)
}

func check(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		log.Fatalf("FAIL %s: got %v (%T), want %v", what, got, got, want)
	}
}

// checkDo runs a command; its reply is an int64, []byte (bulk), string (status), []any or nil.
func checkDo(what string, conn redis.Conn, want any, command string, args ...any) {
	got, err := conn.Do(command, args...)
	check(what, err, nil)
	check(what, got, want)
}

func data() {
	key, value := prefix+"data", []byte(strings.Repeat("binary \x00\r\n\xff", 10000))
	c.Do("DEL", key, key+":n", key+":hash")
	checkDo("GET of a missing key", c, nil, "GET", key)
	checkDo("SET", c, "OK", "SET", key, value)
	checkDo("GET", other, value, "GET", key)
	checkDo("INCR", c, int64(1), "INCR", key+":n")
	checkDo("HSET", c, int64(2), "HSET", key+":hash", "a", 1, "b", 2)
	hash, err := redis.StringMap(c.Do("HGETALL", key+":hash"))
	check("HGETALL", err, nil)
	check("HGETALL", hash, map[string]string{"a": "1", "b": "2"})
	_, err = c.Do("INCR", key+":hash")
	check("INCR of a hash", err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE "), true)
}

func pipeline() {
	for i := range 200 {
		c.Send("SET", fmt.Sprint(prefix, "pipe:", i), i)
		c.Send("GET", fmt.Sprint(prefix, "pipe:", i))
	}
	check("Flush", c.Flush(), nil)
	for i := range 200 {
		checkReceive("OK")
		checkReceive(fmt.Append(nil, i))
	}
}

func checkReceive(want any) {
	got, err := c.Receive()
	check("Receive", err, nil)
	check("Receive", got, want)
}

func transaction() {
	key := prefix + "tx"
	c.Send("MULTI")
	c.Send("SET", key, 1)
	c.Send("INCR", key)
	checkDo("EXEC", c, []any{"OK", int64(2)}, "EXEC")
	checkDo("WATCH", c, "OK", "WATCH", key)
	checkDo("SET by another", other, "OK", "SET", key, "changed")
	c.Send("MULTI")
	c.Send("SET", key, "lost")
	checkDo("EXEC of a changed key", c, nil, "EXEC")
	checkDo("GET after WATCH", c, []byte("changed"), "GET", key)
}

func pubsub() {
	channel := prefix + "channel"
	sub := redis.PubSubConn{Conn: connect()}
	defer sub.Close()
	check("SUBSCRIBE", sub.Subscribe(channel), nil)
	check("SUBSCRIBE", sub.Receive(), redis.Subscription{Kind: "subscribe", Channel: channel,
		Count: 1})
	checkDo("PUBLISH", c, int64(1), "PUBLISH", channel, "hello")
	check("message", sub.Receive(), redis.Message{Channel: channel, Data: []byte("hello")})
	check("UNSUBSCRIBE", sub.Unsubscribe(channel), nil)
	check("UNSUBSCRIBE", sub.Receive(), redis.Subscription{Kind: "unsubscribe", Channel: channel})
	checkDo("PUBLISH without subscribers", c, int64(0), "PUBLISH", channel, "hello")
	checkDo("PING after UNSUBSCRIBE", sub.Conn, "PONG", "PING")
}

func script() {
	key := prefix + "script"
	checkDo("EVAL", c, []any{[]byte(key), []byte("arg"), int64(7)}, "EVAL",
		"return {KEYS[1], ARGV[1], 7}", 1, key, "arg")
	set := redis.NewScript(1, "return redis.call('SET', KEYS[1], ARGV[1])")
	check("SCRIPT LOAD", set.Load(c), nil)
	got, err := set.Do(c, key, "by script") // EVALSHA
	check("EVALSHA", err, nil)
	check("EVALSHA", got, "OK")
	checkDo("GET", c, []byte("by script"), "GET", key)
}

func takeLock(key string) int64 {
	token, err := redis.Int64(c.Do("LOCK", key, 600))
	check("LOCK", err, nil)
	check("LOCK's token is positive", token > 0, true)
	return token
}

func lock() {
	key := prefix + "lock"
	token := takeLock(key)
	checkDo("LOCK from another connection", other, nil, "LOCK", key, 600)
	checkDo("UNLOCK with a wrong token", other, int64(0), "UNLOCK", key, token+1)
	checkDo("UNLOCK with the token", other, int64(1), "UNLOCK", key, token)
	check("the next token is greater", takeLock(key) > token, true)
	checkDo("UNLOCK by another connection", other, int64(0), "UNLOCK", key)
	checkDo("UNLOCK by this connection", c, int64(1), "UNLOCK", key)
}

func lockOrder() {
	key := prefix + "order"
	c.Send("LOCK", key, 600)
	c.Send("SET", key+":value", "written under the lock")
	c.Send("UNLOCK", key)
	c.Send("GET", key+":value")
	check("Flush", c.Flush(), nil)
	token, err := redis.Int64(c.Receive())
	check("LOCK", err == nil && token > 0, true)
	checkReceive("OK")
	checkReceive(int64(1))
	checkReceive([]byte("written under the lock"))
}

func lockWait() {
	key := prefix + "wait"
	token := takeLock(key)
	granted := make(chan any, 1)
	go func() {
		reply, err := redis.DoWithTimeout(other, 2*time.Minute, "LOCK", key, 600, "WAIT", 60)
		check("LOCK WAIT", err, nil)
		granted <- reply
	}()
	select {
	case reply := <-granted:
		log.Fatalf("FAIL LOCK WAIT: it did not wait: %v", reply)
	case <-time.After(200 * time.Millisecond):
	}
	c.Send("SET", key+":value", token)
	checkDo("UNLOCK", c, int64(1), "UNLOCK", key)
	next, err := redis.Int64(<-granted, nil)
	check("LOCK WAIT", err, nil)
	check("the waiter's token is greater", next > token, true)
	checkDo("what the waiter sees", other, fmt.Append(nil, token), "GET", key+":value")
	checkDo("UNLOCK by the waiter", other, int64(1), "UNLOCK", key)
}

// lockLost reads from the lock's own connection, on which nothing comes but its end.
func lockLost() {
	key := prefix + "lost"
	mine, err := redis.Dial("tcp", net.JoinHostPort(os.Args[1], os.Args[2]))
	check("connect", err, nil)
	_, err = redis.Int64(mine.Do("LOCK", key, 600, "SESSION"))
	check("LOCK", err, nil)
	ended := make(chan error, 1)
	go func() {
		_, err := mine.Receive()
		ended <- err
	}()
	checkDo("UNLOCK FORCE", other, int64(1), "UNLOCK", key, "FORCE")
	select {
	case err := <-ended:
		check("the connection has ended", err, io.EOF)
	case <-time.After(2 * time.Minute):
		log.Fatal("FAIL the lock is lost, and nothing tells")
	}
}
