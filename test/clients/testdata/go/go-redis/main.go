// Command go-redis uses ordinary commands and locks through lockproxy with go-redis.
//
// usage: go-redis HOST PORT [2|3]     (the RESP version; 3 if not given)
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long the program waits for what must happen.
const patience = 2 * time.Minute

var (
	ctx    = context.Background()
	prefix = "client-test:go-redis:"
	rdb    *redis.Client // a pool of connections
	other  *redis.Client
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: go-redis HOST PORT [2|3]")
	}
	protocol := 3
	if len(os.Args) > 3 && os.Args[3] == "2" {
		protocol = 2
	}
	opt := redis.Options{
		Addr:       net.JoinHostPort(os.Args[1], os.Args[2]),
		Protocol:   protocol,
		MaxRetries: -1, // a LOCK that is sent twice is refused because of its first try

		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
	}
	rdb, other = redis.NewClient(&opt), redis.NewClient(&opt)

	step("data", data)
	step("pipeline", pipeline)
	step("transaction", transaction)
	step("pubsub", pubsub)
	step("script", script)
	step("wait-command", func() { checkInt("WAIT", rdb.Wait(ctx, 0, 100*time.Millisecond), 0) })
	step("lock", lock)
	step("lock-error", func() {
		err := rdb.Do(ctx, "LOCK", prefix+"lock", -1).Err()
		var replied redis.Error
		check("LOCK's error is a redis.Error", errors.As(err, &replied), true)
		check("LOCK with a negative timeout", err.Error(),
			`ERR timeout is negative: "-1" (seconds, greater than 0, at most 86400)`)
	})
	step("lock-order", lockOrder)
	step("lock-wait", lockWait)
	step("lock-shared", lockShared)
	step("lock-lost", func() { lockLost(protocol) })
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

func checkInt(what string, cmd interface{ Result() (int64, error) }, want int64) {
	got, err := cmd.Result()
	check(what, err, nil)
	check(what, got, want)
}

func data() {
	key, value := prefix+"data", strings.Repeat("binary \x00\r\n\xff", 10000)
	rdb.Del(ctx, key, key+":n", key+":hash")
	check("GET of a missing key", rdb.Get(ctx, key).Err(), redis.Nil)
	check("SET", rdb.Set(ctx, key, value, 0).Err(), nil)
	check("GET", other.Get(ctx, key).Val(), value)
	checkInt("INCR", rdb.Incr(ctx, key+":n"), 1)
	checkInt("HSET", rdb.HSet(ctx, key+":hash", "a", 1, "b", 2), 2)
	check("HGETALL", rdb.HGetAll(ctx, key+":hash").Val(), map[string]string{"a": "1", "b": "2"})
	err := rdb.Incr(ctx, key+":hash").Err()
	check("INCR of a hash", err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE "), true)
}

func pipeline() {
	cmds, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 200 {
			p.Set(ctx, fmt.Sprint(prefix, "pipe:", i), i, 0)
			p.Get(ctx, fmt.Sprint(prefix, "pipe:", i))
		}
		return nil
	})
	check("pipeline", err, nil)
	for i := range 200 {
		check("SET in a pipeline", cmds[2*i].(*redis.StatusCmd).Val(), "OK")
		check("GET in a pipeline", cmds[2*i+1].(*redis.StringCmd).Val(), fmt.Sprint(i))
	}
}

func transaction() {
	key := prefix + "tx"
	cmds, err := rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Set(ctx, key, 1, 0)
		tx.Incr(ctx, key)
		return nil
	})
	check("MULTI/EXEC", err, nil)
	check("INCR in MULTI", cmds[1].(*redis.IntCmd).Val(), int64(2))
	err = rdb.Watch(ctx, func(tx *redis.Tx) error {
		check("SET by another", other.Set(ctx, key, "changed", 0).Err(), nil)
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			return p.Set(ctx, key, "lost", 0).Err()
		})
		return err
	}, key)
	check("EXEC of a changed key", err, redis.TxFailedErr)
	check("GET after WATCH", rdb.Get(ctx, key).Val(), "changed")
}

func pubsub() {
	channel := prefix + "channel"
	sub := rdb.Subscribe(ctx, channel)
	defer sub.Close()
	receive := func(want any) {
		got, err := sub.ReceiveTimeout(ctx, patience)
		check("Receive", err, nil)
		check("Receive", got, want)
	}
	receive(&redis.Subscription{Kind: "subscribe", Channel: channel, Count: 1})
	checkInt("PUBLISH", other.Publish(ctx, channel, "hello"), 1)
	receive(&redis.Message{Channel: channel, Payload: "hello"})
	check("UNSUBSCRIBE", sub.Unsubscribe(ctx, channel), nil)
	receive(&redis.Subscription{Kind: "unsubscribe", Channel: channel})
	checkInt("PUBLISH without subscribers", other.Publish(ctx, channel, "hello"), 0)
}

func script() {
	key := prefix + "script"
	got := rdb.Eval(ctx, "return {KEYS[1], ARGV[1], 7}", []string{key}, "arg").Val()
	check("EVAL", got, []any{key, "arg", int64(7)})
	sha := rdb.ScriptLoad(ctx, "return redis.call('SET', KEYS[1], ARGV[1])").Val()
	check("EVALSHA", rdb.EvalSha(ctx, sha, []string{key}, "by script").Val(), "OK")
	check("GET", rdb.Get(ctx, key).Val(), "by script")
}

func lock() {
	key := prefix + "lock"
	conn := rdb.Conn() // UNLOCK without a token must come from the connection that locked
	defer conn.Close()
	token, err := conn.Do(ctx, "LOCK", key, 600).Int64()
	check("LOCK", err, nil)
	check("LOCK's token is positive", token > 0, true)
	check("LOCK from another connection", other.Do(ctx, "LOCK", key, 600).Err(), redis.Nil)
	checkUnlock := func(what string, cmd *redis.Cmd, want int64) {
		got, err := cmd.Int64()
		check(what, err, nil)
		check(what, got, want)
	}
	checkUnlock("UNLOCK with a wrong token", other.Do(ctx, "UNLOCK", key, token+1), 0)
	checkUnlock("UNLOCK with the token", other.Do(ctx, "UNLOCK", key, token), 1)
	next, err := conn.Do(ctx, "LOCK", key, 600).Int64()
	check("the next token is greater", err == nil && next > token, true)
	checkUnlock("UNLOCK by another connection", other.Do(ctx, "UNLOCK", key), 0)
	checkUnlock("UNLOCK by this connection", conn.Do(ctx, "UNLOCK", key), 1)
}

// unlockAfterSet pipelines both: the next holder of the lock sees the value.
func unlockAfterSet(key string, value any, token int64) {
	p := rdb.Pipeline()
	p.Set(ctx, key+":value", value, 0)
	unlocked := p.Do(ctx, "UNLOCK", key, token)
	_, err := p.Exec(ctx)
	check("SET, UNLOCK", err, nil)
	check("UNLOCK", unlocked.Val(), int64(1))
}

func lockOrder() {
	key := prefix + "order"
	p := rdb.Pipeline()
	token := p.Do(ctx, "LOCK", key, 600)
	p.Set(ctx, key+":value", "written under the lock", 0)
	unlocked := p.Do(ctx, "UNLOCK", key)
	value := p.Get(ctx, key+":value")
	_, err := p.Exec(ctx)
	check("pipeline", err, nil)
	n, err := token.Int64()
	check("LOCK", err == nil && n > 0, true)
	check("UNLOCK", unlocked.Val(), int64(1))
	check("GET", value.Val(), "written under the lock")
}

func lockWait() {
	key := prefix + "wait"
	token, err := rdb.Do(ctx, "LOCK", key, 600).Int64()
	check("LOCK", err, nil)
	granted := make(chan *redis.Cmd, 1)
	// go-redis gives up on a reply after ReadTimeout, 5 s by default: it is longer than the wait.
	go func() { granted <- other.Do(ctx, "LOCK", key, 600, "WAIT", 60) }()
	select {
	case cmd := <-granted:
		log.Fatalf("FAIL LOCK WAIT: it did not wait: %v", cmd)
	case <-time.After(200 * time.Millisecond):
	}
	unlockAfterSet(key, token, token)
	next, err := (<-granted).Int64()
	check("LOCK WAIT", err, nil)
	check("the waiter's token is greater", next > token, true)
	check("what the waiter sees", other.Get(ctx, key+":value").Val(), fmt.Sprint(token))
	check("UNLOCK by the waiter", other.Do(ctx, "UNLOCK", key, next).Val(), int64(1))
}

// lockLost blocks on the lock's own connection, which ends with the lock.
func lockLost(protocol int) {
	key := prefix + "lost"
	mine := redis.NewClient(&redis.Options{
		Addr: net.JoinHostPort(os.Args[1], os.Args[2]), Protocol: protocol,
	}).Conn()
	check("LOCK", mine.Do(ctx, "LOCK", key, 600, "SESSION").Err(), nil)
	ended := make(chan error, 1)
	go func() { ended <- mine.BLPop(ctx, 10*time.Minute, key+":never").Err() }()
	time.Sleep(100 * time.Millisecond)
	check("UNLOCK FORCE", other.Do(ctx, "UNLOCK", key, "FORCE").Val(), int64(1))
	select {
	case err := <-ended:
		check("the connection has ended", err != nil && err != redis.Nil, true)
	case <-time.After(patience):
		log.Fatal("FAIL the lock is lost, and nothing tells")
	}
}
