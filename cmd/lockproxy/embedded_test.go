package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// Every lock command works on the embedded store, which has another Lua than Redis.
func TestEmbeddedLocks(t *testing.T) {
	store, err := startEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	defer store.stop()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	var mu sync.Mutex // for log
	server := proxy.New(proxy.Config{Upstream: store.upstream,
		Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu}),
		Locks:  lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Minute}})
	go server.Serve(ln) // ends with Close
	defer server.Close()
	client := redis.NewClient(testredis.Patient(&redis.Options{
		Addr: ln.Addr().String(), Protocol: 2, MaxRetries: -1,
		DisableIdentity: true}))
	defer client.Close()
	do := func(args ...any) any {
		t.Helper()
		v, err := client.Do(context.Background(), args...).Result()
		if err != nil && err != redis.Nil {
			t.Fatalf("%v: %v", args, err)
		}
		return v
	}
	is := func(want any, args ...any) {
		t.Helper()
		if got := do(args...); got != want {
			t.Fatalf("%v: %v, want %v", args, got, want)
		}
	}

	// redis-cli asks for it when it is used by hand.
	if docs := do("COMMAND", "DOCS").([]any); len(docs) < 400 {
		t.Fatalf("COMMAND DOCS: %d elements", len(docs))
	}
	commands := do("COMMAND").([]any)
	if len(commands) < 100 {
		t.Fatalf("COMMAND: %d commands", len(commands))
	}
	is(int64(len(commands)), "COMMAND", "COUNT")
	if names := do("COMMAND", "LIST").([]any); len(names) != len(commands) {
		t.Fatalf("COMMAND LIST: %d of %d commands", len(names), len(commands))
	}
	for _, names := range [][]any{{"once", "done"}, {"get"}, {"nope", "LOCK", "Get"}} {
		infos := do(append([]any{"COMMAND", "INFO"}, names...)...).([]any)
		if len(infos) != len(names) {
			t.Fatalf("COMMAND INFO %v: %d commands", names, len(infos))
		}
		for i, info := range infos {
			name := strings.ToLower(names[i].(string))
			if entry, _ := info.([]any); (name == "nope") != (entry == nil) ||
				entry != nil && entry[0] != name {
				t.Errorf("COMMAND INFO %v: %v", name, info)
			}
		}
	}
	keys := do("COMMAND", "GETKEYS", "FENCE", "job", 1, "SET", "a", "b").([]any)
	if !slices.Equal(keys, []any{"job", "a"}) {
		t.Fatalf("COMMAND GETKEYS FENCE job 1 SET a b: %v", keys)
	}

	last := int64(0)
	for range 3 { // the second time what the first has left is read
		token := do("LOCK", "job", 600).(int64)
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
		is(nil, "LOCK", "job", 600)
		is(nil, "LOCK", "job", 600, "WAIT", 0.05)
		is(int64(1), "RELOCK", "job", token, 300)
		is("OK", "FENCE", "job", token, "SET", "x", "1")
		if info := do("LOCKINFO", "job").([]any); info[1] != "held" {
			t.Fatalf("LOCKINFO: %v", info)
		}
		is(int64(1), "UNLOCK", "job", token)
		is(int64(0), "UNLOCK", "job", token)
	}
	token := do("LOCK", "short", 0.1).(int64)
	next := do("LOCK", "short", 600, "WAIT", 600).(int64)
	if next <= token {
		t.Fatalf("token %d after %d", next, token)
	}
	is(int64(1), "UNLOCK", "short", "FORCE")

	shared := do("LOCK", "shared", 600, "SHARED").(int64)
	is(int64(1), "UNLOCK", "shared", "FORCE")
	mu.Lock()
	if line := fmt.Sprintf("token=%d", shared); !strings.Contains(log.String(), line) {
		t.Fatalf("no %s in the log: %s", line, log.String())
	}
	mu.Unlock()

	holder := do("LOCK", "handed", 600).(int64)
	waited := make(chan any, 1)
	go func() { // ends with its reply
		v, _ := client.Do(context.Background(), "LOCK", "handed", 600, "WAIT", 600).Result()
		waited <- v
	}()
	testwait.Until(t, "it waits", func() bool {
		info := do("LOCKINFO", "handed").([]any)
		at := slices.Index(info, any("waiters"))
		return at >= 0 && info[at+1] == int64(1)
	})
	is(int64(1), "UNLOCK", "handed", holder)
	if token, ok := (<-waited).(int64); !ok || token <= holder {
		t.Fatalf("handed over: %d after %d", token, holder)
	}
}
