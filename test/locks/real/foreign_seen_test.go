package real_test

// Locks of other libraries that pass through the proxy are recognised and shown.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/foreign"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

const (
	compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then
		return redis.call("del",KEYS[1]) end return 0`
	compareAndExtend = `if redis.call("get",KEYS[1]) == ARGV[1] then
		return redis.call("pexpire",KEYS[1],ARGV[2]) end return 0`
	oneCallTake = `return redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])` // node-redlock's
)

// foreignRecipe is how a library takes, extends and releases a lock of 300 s. It is
// extended to 600 s.
type foreignRecipe struct {
	name               string
	take, extend, free []any // "" is the key
	taken              any   // the reply
	take2              []any // by another client
}

func foreignRecipes() []foreignRecipe {
	list := []foreignRecipe{
		{name: "SET NX PX", take: []any{"SET", "", "me", "NX", "PX", 300000}, taken: "OK",
			extend: []any{"EVAL", compareAndExtend, 1, "", "me", 600000},
			free:   []any{"EVAL", compareAndDelete, 1, "", "me"}},
		{name: "SET EX NX", take: []any{"set", "", "me", "ex", 300, "nx"}, taken: "OK",
			extend: []any{"PEXPIRE", "", 600000}, free: []any{"DEL", ""}},
		{name: "SET PXAT NX", take: []any{"SET", "", "me", "NX", "PXAT",
			time.Now().UnixMilli() + 300000}, taken: "OK",
			extend: []any{"EXPIRE", "", 600}, free: []any{"UNLINK", ""}},
		{name: "SET NX GET", take: []any{"SET", "", "me", "NX", "GET", "PX", 300000}, taken: nil,
			extend: []any{"EVAL", compareAndExtend, 1, "", "me", 600000},
			free:   []any{"EVAL", compareAndDelete, 1, "", "me"}},
		{name: "a script", take: []any{"EVAL", oneCallTake, 1, "", "me", 300000}, taken: "OK",
			extend: []any{"EVAL", compareAndExtend, 1, "", "me", 600000},
			free:   []any{"EVAL", compareAndDelete, 1, "", "me"}},
	}
	for i := range list {
		r := &list[i]
		for _, word := range r.take {
			if word == "me" {
				word = "you"
			}
			r.take2 = append(r.take2, word)
		}
	}
	return list
}

// at is a request of a recipe about a key.
func at(request []any, key string) []any {
	request = slices.Clone(request)
	for i, word := range request {
		if word == "" {
			request[i] = key
		}
	}
	return request
}

// named is a go-redis client with a name and a library.
func named(t *testing.T, addr, name string) *redis.Client {
	c := redis.NewClient(testredis.Patient(&redis.Options{
		Addr: addr, Protocol: 2, ClientName: name, PoolSize: 1,
		MaxRetries: -1, DisableIdentity: true}))
	t.Cleanup(func() { c.Close() })
	// Redis knows CLIENT SETINFO since 7.2; before, no library is shown.
	c.Do(proxytest.Ctx, "CLIENT", "SETINFO", "lib-name", "locklib")
	c.Do(proxytest.Ctx, "CLIENT", "SETINFO", "lib-ver", "2.1")
	return c
}

func TestForeignLocksAreSeen(t *testing.T) {
	t.Parallel()
	for i, r := range foreignRecipes() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			p := proxytest.StartBy(t, testredis.TCP, testredis.Start(t).URL(), nil)
			began := time.Now()
			foreignRecipes()[i].test(t, p, began) // with times from now on
		})
	}
}

// lasts reports whether a lock that was taken or extended after began expires so much later.
func lasts(lock foreign.Lock, began time.Time, lease time.Duration) bool {
	const rounding = time.Millisecond
	earliest, latest := began.Add(lease-rounding), time.Now().Add(lease+rounding)
	return lock.Until.After(earliest) && lock.Until.Before(latest)
}

func (r foreignRecipe) test(t *testing.T, p *proxytest.Proxy, began time.Time) {
	const key = "job"
	holder, other := named(t, p.Addr, "worker-1"), named(t, p.Addr, "worker-2")
	library := ""
	if holder.Do(proxytest.Ctx, "CLIENT", "SETINFO", "lib-ver", "2.1").Err() == nil {
		library = "locklib 2.1"
	}
	if got, err := holder.Do(proxytest.Ctx, at(r.take, key)...).Result(); got != r.taken {
		t.Fatalf("taken: %v, %v", got, err)
	}
	for range 3 {
		if got, _ := other.Do(proxytest.Ctx, at(r.take2, key)...).Result(); got == r.taken {
			t.Fatalf("taken again: %v", got)
		}
	}
	locks := p.Server.Locks()
	seen := locks.ForeignLocks(10)
	if len(seen) != 1 {
		t.Fatalf("seen: %+v", seen)
	}
	lock := seen[0]
	if lock.Key != key || lock.Holder.Name != "worker-1" || lock.Holder.Library != library ||
		!lasts(lock, began, 300*time.Second) {
		t.Errorf("seen: %+v", lock)
	}
	if lock.Refused != 3 || len(lock.Trying) != 1 || lock.Trying[0].Times != 3 ||
		lock.Trying[0].Name != "worker-2" {
		t.Errorf("refused: %+v", lock)
	}
	info, err := other.Do(proxytest.Ctx, "LOCKINFO", key).Slice()
	text := fmt.Sprintln(info...)
	shown := library
	if shown == "" {
		shown = "<nil>"
	}
	for _, want := range []string{"state held kind other", "owner worker-1 client " +
		lock.Holder.Addr + " acquired_ms 1", " holders 1 note <nil> name worker-1 held_ms ",
		" waiters_elsewhere 0 library " + shown + " refused 3 trying " + "[[owner worker-2 client " + lock.Trying[0].Addr + " library " + shown +
			" refused 3 since_ms 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("LOCKINFO lacks %q: %s, %v", want, text, err)
		}
	}
	said := other.Do(proxytest.Ctx, "UNLOCK", key, "FORCE").Err()
	if want := "which this proxy has seen " + lock.Holder.Addr + " take: its holder frees it, or DEL"; said ==
		nil || !strings.Contains(said.Error(), want) || !strings.Contains(said.Error(), library) {
		t.Errorf("FORCE: %v", said)
	}
	if r.extend != nil {
		began := time.Now()
		holder.Do(proxytest.Ctx, at(r.extend, key)...)
		if lock := locks.ForeignLocks(1)[0]; !lasts(lock, began, 600*time.Second) {
			t.Errorf("extended: %+v", lock)
		}
	}
	if got, err := holder.Do(proxytest.Ctx, at(r.free, key)...).Result(); got != int64(1) {
		t.Fatalf("released: %v, %v", got, err)
	}
	for _, lock := range locks.ForeignLocks(10) {
		if lock.Holder.Addr != "" {
			t.Errorf("still held: %+v", lock)
		}
	}
	want, got := foreign.Counts{Taken: 1, Released: 1, Refused: 3, Trying: 1},
		p.Server.Stats().Locks.Foreign
	if want.OldestTry = got.OldestTry; got != want || got.OldestTry == 0 {
		t.Errorf("counted: %+v, want %+v", got, want)
	}
}

// Where LOCK has the lock, LOCKINFO says which other clients try to take it, and nothing of them if
// none does.
func TestForeignClientsThatTryAreSeen(t *testing.T) {
	t.Parallel()
	p := proxytest.StartBy(t, testredis.TCP, testredis.Start(t).URL(), nil)
	c, other := proxytest.GoRedis(t, p.Addr), named(t, p.Addr, "worker-2")
	c.Do(proxytest.Ctx, "LOCK", "job", 300)
	info := func() string { return fmt.Sprint(other.Do(proxytest.Ctx, "LOCKINFO", "job").Val()) }
	if got := info(); !strings.HasSuffix(got, " waiters_elsewhere 0]") {
		t.Errorf("LOCKINFO: %s", got)
	}
	for range 2 {
		other.SetNX(proxytest.Ctx, "job", "me", time.Hour)
	}
	if got := info(); !strings.Contains(got, "kind lockproxy") ||
		!strings.Contains(got, " waiters_elsewhere 0 trying [[owner worker-2 client 127.0.0.1:") ||
		!strings.Contains(got, " refused 2 since_ms 1") {
		t.Errorf("LOCKINFO: %s", got)
	}
}

// LOCKSCAN KIND lists what the proxy has seen, and the upstream says is held.
func TestLockScanKinds(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct, c := proxytest.GoRedis(t, server.Addr()), proxytest.GoRedis(t, p.Addr)
	want := map[string][]string{}
	for i := range 25 {
		n := strconv.Itoa(i)
		c.Do(proxytest.Ctx, "LOCK", "own:"+n, 600)
		c.SetNX(proxytest.Ctx, "other:"+n, "me", time.Hour)
		c.SetNX(proxytest.Ctx, "timestamp:"+n, time.Now().Unix()+3600, 0)
		want["lockproxy"] = append(want["lockproxy"], "own:"+n)
		want["other"] = append(want["other"], "other:"+n)
		want["timestamp"] = append(want["timestamp"], "timestamp:"+n)
	}
	c.SetNX(proxytest.Ctx, "gone", "me", time.Hour)
	direct.Del(proxytest.Ctx, "gone") // the proxy does not see that
	direct.SetNX(proxytest.Ctx, "unseen", "me", time.Hour)
	want["all"] = slices.Concat(want["lockproxy"], want["other"], want["timestamp"])
	want[""] = want["lockproxy"]
	for kind, want := range want {
		var got []string
		cursor, steps := "0", 0
		for ; steps == 0 || cursor != "0"; steps++ {
			args := []any{"LOCKSCAN", cursor, "MATCH", "*[o-t]*:*", "COUNT", 7}
			if kind != "" {
				args = append(args, "KIND", kind)
			}
			page, err := c.Do(proxytest.Ctx, args...).Slice()
			if err != nil {
				t.Fatal(err)
			}
			cursor = page[0].(string)
			for _, key := range page[1].([]any) {
				got = append(got, key.(string))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || steps < 3 {
			t.Errorf("KIND %s: %q in %d steps, want %q", kind, got, steps, want)
		}
	}
	for _, bad := range [][]any{{"LOCKSCAN", 0, "KIND"}, {"LOCKSCAN", 0, "KIND", "none"}} {
		if err := c.Do(proxytest.Ctx, bad...).Err(); err == nil ||
			!strings.HasPrefix(err.Error(), "ERR syntax") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
