// Command rueidis uses ordinary commands and locks through lockproxy with rueidis.
//
// usage: rueidis HOST PORT [2|3]     (the RESP version; 3 if not given)
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const (
	prefix   = "client-test:rueidis:"
	patience = 2 * time.Minute // for what must happen
)

var (
	ctx   = context.Background()
	resp2 bool
	r     rueidis.Client // pipelines all callers over few connections
	other rueidis.Client
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: rueidis HOST PORT [2|3]")
	}
	resp2 = len(os.Args) > 3 && os.Args[3] == "2"
	r, other = connect(), connect()

	step("data", data)
	step("pipeline", pipeline)
	step("transaction", transaction)
	step("pubsub", pubsub)
	step("script", script)
	step("wait-command", func() {
		checkInt("WAIT", r.Do(ctx, r.B().Wait().Numreplicas(0).Timeout(100).Build()), 0)
	})
	step("lock", lock)
	step("lock-error", func() {
		err := r.Do(ctx, command("LOCK", prefix+"lock", -1)).Error()
		_, replied := rueidis.IsRedisErr(err)
		check("LOCK's error is an error reply", replied, true)
		// rueidis strips ERR
		check("LOCK with a negative timeout", err.Error(),
			`timeout is negative: "-1" (seconds, greater than 0, at most 86400)`)
	})
	step("lock-order", lockOrder)
	if !resp2 {
		step("client-side-cache", clientSideCache)
	}
	step("lock-wait", lockWait)
	step("lock-lost", lockLost)
}

func connect() rueidis.Client {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{net.JoinHostPort(os.Args[1], os.Args[2])},
		AlwaysRESP2:  resp2,
		DisableCache: resp2, // client-side caching needs RESP3
		DisableRetry: true,

		Dialer: net.Dialer{Timeout: patience}, ConnWriteTimeout: patience,
		// Before a cluster it would be a client that knows
		// clusters, and refuse what such a client must.
		ForceSingleClient: os.Getenv("LOCKPROXY_TEST_CLUSTER") != "",
	})
	check("connect", err, nil)
	return client
}

// command builds a command for which rueidis has no builder.
func command(name, key string, args ...any) rueidis.Completed {
	b := r.B().Arbitrary(name).Keys(key)
	for _, arg := range args {
		b = b.Args(fmt.Sprint(arg))
	}
	return b.Build()
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

func checkInt(what string, result rueidis.RedisResult, want int64) {
	got, err := result.ToInt64()
	check(what, err, nil)
	check(what, got, want)
}

func checkText(what string, result rueidis.RedisResult, want string) {
	got, err := result.ToString()
	check(what, err, nil)
	check(what, got, want)
}

func data() {
	key, value := prefix+"data", strings.Repeat("binary \x00\r\n\xff", 10000)
	r.Do(ctx, r.B().Del().Key(key, key+":n", key+":hash").Build())
	check("GET of a missing key",
		rueidis.IsRedisNil(r.Do(ctx, r.B().Get().Key(key).Build()).Error()), true)
	checkText("SET", r.Do(ctx, r.B().Set().Key(key).Value(value).Build()), "OK")
	checkText("GET", other.Do(ctx, other.B().Get().Key(key).Build()), value)
	checkInt("INCR", r.Do(ctx, r.B().Incr().Key(key+":n").Build()), 1)
	fields := r.B().Hset().Key(key+":hash").FieldValue().FieldValue("a", "1").FieldValue("b", "2")
	checkInt("HSET", r.Do(ctx, fields.Build()), 2)
	got, err := r.Do(ctx, r.B().Hgetall().Key(key+":hash").Build()).AsStrMap()
	check("HGETALL", err, nil)
	check("HGETALL", got, map[string]string{"a": "1", "b": "2"})
	err = r.Do(ctx, r.B().Incr().Key(key+":hash").Build()).Error()
	check("INCR of a hash", err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE "), true)
}

func pipeline() {
	var cmds rueidis.Commands
	for i := range 200 {
		key := fmt.Sprint(prefix, "pipe:", i)
		cmds = append(cmds, r.B().Set().Key(key).Value(fmt.Sprint(i)).Build(),
			r.B().Get().Key(key).Build())
	}
	for i, result := range r.DoMulti(ctx, cmds...) {
		checkText("pipeline", result, []string{"OK", fmt.Sprint(i / 2)}[i%2])
	}
}

func transaction() {
	key := prefix + "tx"
	err := r.Dedicated(func(c rueidis.DedicatedClient) error {
		replies := c.DoMulti(ctx, c.B().Multi().Build(), c.B().Set().Key(key).Value("1").Build(),
			c.B().Incr().Key(key).Build(), c.B().Exec().Build())
		exec, err := replies[3].ToArray()
		check("EXEC", err, nil)
		n, err := exec[1].ToInt64()
		check("INCR in MULTI", err, nil)
		check("INCR in MULTI", n, int64(2))

		checkText("WATCH", c.Do(ctx, c.B().Watch().Key(key).Build()), "OK")
		checkText("SET by another",
			other.Do(ctx, other.B().Set().Key(key).Value("changed").Build()), "OK")
		replies = c.DoMulti(ctx, c.B().Multi().Build(), c.B().Set().Key(key).Value("lost").Build(),
			c.B().Exec().Build())
		check("EXEC of a changed key", rueidis.IsRedisNil(replies[2].Error()), true)
		return nil
	})
	check("Dedicated", err, nil)
	checkText("GET after WATCH", r.Do(ctx, r.B().Get().Key(key).Build()), "changed")
}

func pubsub() {
	channel := prefix + "channel"
	c, release := r.Dedicate()
	defer release()
	messages := make(chan rueidis.PubSubMessage, 1)
	ended := c.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { messages <- m },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" {
				go func() {
					hello := other.B().Publish().Channel(channel).Message("hello").Build()
					checkInt("PUBLISH", other.Do(ctx, hello), 1)
				}()
			}
		},
	})
	check("SUBSCRIBE", c.Do(ctx, c.B().Subscribe().Channel(channel).Build()).Error(), nil)
	select {
	case m := <-messages:
		check("message", m, rueidis.PubSubMessage{Channel: channel, Message: "hello"})
	case err := <-ended:
		log.Fatalf("FAIL message: the subscription ended: %v", err)
	case <-time.After(patience):
		log.Fatal("FAIL message: none in 5 s")
	}
	check("UNSUBSCRIBE", c.Do(ctx, c.B().Unsubscribe().Channel(channel).Build()).Error(), nil)
	checkInt("PUBLISH without subscribers",
		other.Do(ctx, other.B().Publish().Channel(channel).Message("hello").Build()), 0)
}

func script() {
	key := prefix + "script"
	checkText("EVAL",
		r.Do(ctx, r.B().Eval().Script("return ARGV[1]").Numkeys(1).Key(key).Arg("arg").Build()),
		"arg")
	// A Lua script of rueidis is sent by EVALSHA, and by EVAL when the server doesn't know it.
	lua := rueidis.NewLuaScript("return redis.call('SET', KEYS[1], ARGV[1])")
	checkText("EVALSHA", lua.Exec(ctx, r, []string{key}, []string{"by script"}), "OK")
	checkText("GET", r.Do(ctx, r.B().Get().Key(key).Build()), "by script")
}

func takeLock(do func(context.Context, rueidis.Completed) rueidis.RedisResult, key string) int64 {
	token, err := do(ctx, command("LOCK", key, 600)).ToInt64()
	check("LOCK", err, nil)
	check("LOCK's token is positive", token > 0, true)
	return token
}

func lock() {
	key := prefix + "lock"
	c, release := r.Dedicate() // UNLOCK without a token must come from the connection that locked
	defer release()
	token := takeLock(c.Do, key)
	check("LOCK from another connection",
		rueidis.IsRedisNil(other.Do(ctx, command("LOCK", key, 600)).Error()), true)
	checkInt("UNLOCK with a wrong token", other.Do(ctx, command("UNLOCK", key, token+1)), 0)
	checkInt("UNLOCK with the token", other.Do(ctx, command("UNLOCK", key, token)), 1)
	check("the next token is greater", takeLock(c.Do, key) > token, true)
	checkInt("UNLOCK by another connection", other.Do(ctx, command("UNLOCK", key)), 0)
	checkInt("UNLOCK by this connection", c.Do(ctx, command("UNLOCK", key)), 1)
}

func lockOrder() {
	key := prefix + "order"
	replies := r.DoMulti(ctx,
		command("LOCK", key, 600),
		r.B().Set().Key(key+":value").Value("written under the lock").Build(),
		command("UNLOCK", key),
		r.B().Get().Key(key+":value").Build())
	token, err := replies[0].ToInt64()
	check("LOCK", err == nil && token > 0, true)
	checkText("SET", replies[1], "OK")
	checkInt("UNLOCK", replies[2], 1)
	checkText("GET", replies[3], "written under the lock")
}

// clientSideCache reads a value that the server tells the client to forget when it changes.
func clientSideCache() {
	key := prefix + "cached"
	for _, value := range []string{"first", "second"} {
		checkText("SET", other.Do(ctx, other.B().Set().Key(key).Value(value).Build()), "OK")
		got := ""
		deadline := time.Now().Add(patience)
		for got != value && time.Now().Before(deadline) {
			var err error
			got, err = r.DoCache(ctx, r.B().Get().Key(key).Cache(), time.Minute).ToString()
			check("GET by cache", err, nil)
		}
		check("GET by cache", got, value)
		check("second GET is from the cache", r.DoCache(ctx, r.B().Get().Key(key).Cache(),
			time.Minute).IsCacheHit(), true)
	}
}

func lockWait() {
	key := prefix + "wait"
	token := takeLock(r.Do, key)
	granted := make(chan rueidis.RedisResult, 1)
	// Blocking gives the command a separate connection: on a shared one it delays all others.
	wait := other.B().Arbitrary("LOCK").Keys(key).Args("600", "WAIT", "60").Blocking()
	go func() { granted <- other.Do(ctx, wait) }()
	select {
	case result := <-granted:
		log.Fatalf("FAIL LOCK WAIT: it did not wait: %v", result)
	case <-time.After(200 * time.Millisecond):
	}
	replies := r.DoMulti(ctx, r.B().Set().Key(key+":value").Value(fmt.Sprint(token)).Build(),
		command("UNLOCK", key, token))
	checkText("SET", replies[0], "OK")
	checkInt("UNLOCK", replies[1], 1)
	next, err := (<-granted).ToInt64()
	check("LOCK WAIT", err, nil)
	check("the waiter's token is greater", next > token, true)
	checkText("what the waiter sees", other.Do(ctx, other.B().Get().Key(key+":value").Build()),
		fmt.Sprint(token))
	checkInt("UNLOCK by the waiter", other.Do(ctx, command("UNLOCK", key, next)), 1)
}

// lockLost uses a dedicated connection. In RESP3 its hooks tell of its end; in RESP2 they have a
// connection of their own, and a command that blocks tells.
func lockLost() {
	key := prefix + "lost"
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{net.JoinHostPort(os.Args[1], os.Args[2])},
		AlwaysRESP2: resp2, DisableCache: resp2,
		ForceSingleClient: os.Getenv("LOCKPROXY_TEST_CLUSTER") != "",
	})
	check("connect", err, nil)
	defer client.Close()
	mine, release := client.Dedicate()
	defer release()
	check("LOCK", mine.Do(ctx, command("LOCK", key, 600, "SESSION")).Error(), nil)
	var ended <-chan error
	if resp2 {
		blocked := make(chan error, 1)
		go func() {
			blocked <- mine.Do(ctx, r.B().Blpop().Key(key+":never").Timeout(600).Build()).Error()
		}()
		time.Sleep(100 * time.Millisecond)
		ended = blocked
	} else {
		ended = mine.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	}
	checkInt("UNLOCK FORCE", other.Do(ctx, command("UNLOCK", key, "FORCE")), 1)
	select {
	case err := <-ended:
		check("the connection has ended", err != nil, true)
	case <-time.After(patience):
		log.Fatal("FAIL the lock is lost, and nothing tells")
	}
}
