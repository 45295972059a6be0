package lockproxy_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	lockproxy "lockproxy/clients/go"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// holdAt has the test binary hold the lock "a" at this address until it is killed.
const holdAt = "HOLD_AT"

func TestMain(m *testing.M) {
	if addr := os.Getenv(holdAt); addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		lockproxy.Do(context.Background(), rdb, "a", lockproxy.Options{Timeout: time.Hour},
			func(context.Context, *held) error { fmt.Println("held"); select {} })
	}
	if args := os.Args[1:]; len(args) > 3 && (args[2] == "hold" || args[2] == "wait") {
		hold(net.JoinHostPort(args[0], args[1]), args[3], args[4:])
	}
	proxytest.Main(m)
}

// hold has the test binary hold a lock until it is killed; it waits for so many seconds before.
func hold(addr, key string, seconds []string) {
	o := lockproxy.Options{Timeout: time.Hour}
	if len(seconds) > 0 {
		wait, _ := time.ParseDuration(seconds[0] + "s")
		o.Wait = cmp.Or(wait, lockproxy.WaitForever)
	}
	err := lockproxy.Do(context.Background(), redis.NewClient(&redis.Options{Addr: addr}), key, o,
		func(context.Context, *held) error { fmt.Println("held"); select {} })
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

type held = lockproxy.Held

func connect(t *testing.T) *redis.Client {
	p := proxytest.StartProcess(t, "--upstream", testredis.Start(t).URL())
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func isFree(t *testing.T, rdb *redis.Client, key string) bool {
	t.Helper()
	err := rdb.Do(t.Context(), "LOCKINFO", key).Err()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	return err == redis.Nil
}

// awaitWaiter returns when a client waits for a lock.
func awaitWaiter(t *testing.T, rdb *redis.Client, key string) {
	t.Helper()
	testwait.Until(t, "a client waits", func() bool {
		info, _ := rdb.Do(t.Context(), "LOCKINFO", key).Result()
		facts, _ := info.(map[any]any)
		return facts["waiters"] == int64(1)
	})
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

// The race detector judges what Do reads of a client whose first connection is being made.
func TestDoWhileTheClientConnects(t *testing.T) {
	t.Parallel()
	addr := connect(t).Options().Addr
	first := &refused{asked: make(chan struct{}), answer: make(chan struct{})}
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (
		nc net.Conn, err error,
	) {
		if nc, err = net.Dial("tcp", addr); first.Conn == nil {
			first.Conn = nc
			return first, err
		}
		return nc, err
	}})
	defer rdb.Close()
	pinged := make(chan error, 1)
	go func() { pinged <- rdb.Ping(t.Context()).Err() }()
	<-first.asked
	close(first.answer)
	for range 100_000 { // the Ping goes on; waiting for it would hide a race from the detector
		runtime.Gosched()
	}
	err := lockproxy.Do(t.Context(), rdb, "a", lockproxy.Options{},
		func(context.Context, *held) error { return nil })
	if err := errors.Join(err, <-pinged); err != nil {
		t.Error(err)
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	rdb, ctx, mine := connect(t), t.Context(), errors.New("mine")

	first := int64(0)
	err := lockproxy.Do(ctx, rdb, "a", lockproxy.Options{Owner: "me"},
		func(ctx context.Context, h *held) error {
			first = h.Token
			if isFree(t, rdb, "a") {
				t.Error("the lock is free while it is held")
			}
			err := lockproxy.Do(ctx, rdb, "a", lockproxy.Options{Wait: 100 * time.Millisecond},
				func(context.Context, *held) error { t.Error("held twice"); return nil })
			if err != lockproxy.ErrNotAcquired {
				t.Errorf("a second Do: %v", err)
			}
			return mine
		})
	if err != mine || !isFree(t, rdb, "a") {
		t.Errorf("after an error of work: %v", err)
	}

	func() {
		defer func() { recover() }()
		lockproxy.Do(ctx, rdb, "a", lockproxy.Options{},
			func(context.Context, *held) error { panic("mine") })
	}()
	if !isFree(t, rdb, "a") {
		t.Error("held after a panic of work")
	}

	var late *held
	write := func(ctx context.Context, h *held) error {
		if late = h; h.Token <= first {
			t.Errorf("token %d after %d", h.Token, first)
		}
		return h.Fence(ctx, "SET", "value", "1").Err()
	}
	err = lockproxy.Do(ctx, rdb, "a", lockproxy.Options{}, write)
	if err != nil {
		t.Error(err)
	}
	if err := late.Fence(ctx, "SET", "value", "2").Err(); !errors.Is(err, lockproxy.ErrLost) {
		t.Errorf("FENCE after the end: %v", err)
	}
	if value := rdb.Get(ctx, "value").Val(); value != "1" {
		t.Errorf("written: %q", value)
	}
}

func TestDoWaits(t *testing.T) {
	t.Parallel()
	rdb, ctx := connect(t), t.Context()
	second := make(chan int64, 1)
	err := lockproxy.Do(ctx, rdb, "a", lockproxy.Options{}, func(_ context.Context, h *held) error {
		go func() { // ends when it has had the lock
			lockproxy.Do(ctx, rdb, "a", lockproxy.Options{Wait: lockproxy.WaitForever},
				func(_ context.Context, h *held) error { second <- h.Token; return nil })
		}()
		awaitWaiter(t, rdb, "a")
		if len(second) > 0 {
			t.Error("held twice")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	testwait.For(t, "the waiter has the lock", second)
}

// A waiter that is told to stop doesn't wait on, and doesn't keep the lock.
func TestDoIsCancelled(t *testing.T) {
	t.Parallel()
	rdb := connect(t)
	err := lockproxy.Do(t.Context(), rdb, "a", lockproxy.Options{},
		func(ctx context.Context, _ *held) error {
			waiting, cancel := context.WithCancelCause(ctx)
			ended := make(chan error, 1)
			go func() { // ends when it is cancelled
				ended <- lockproxy.Do(waiting, rdb, "a",
					lockproxy.Options{Wait: lockproxy.WaitForever},
					func(context.Context, *held) error { t.Error("held twice"); return nil })
			}()
			awaitWaiter(t, rdb, "a")
			cancel(errors.New("stopped"))
			if err := testwait.For(t, "it ends", ended); !errors.Is(err, context.Canceled) {
				t.Errorf("the waiter's error: %v", err)
			}
			return nil
		})
	if err != nil {
		t.Errorf("after the waiter: %v", err)
	}
	// It may have been handed the lock before the proxy has noticed that its connection is closed.
	testwait.Until(t, "the lock is free", func() bool { return isFree(t, rdb, "a") })
}

// A proxy that answers no more doesn't keep Do from returning.
func TestDoEndsWithASilentProxy(t *testing.T) {
	t.Parallel()
	p := proxytest.StartProcess(t, "--upstream", testredis.Start(t).URL())
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr})
	defer rdb.Close()
	ended := make(chan error, 1)
	go func() { // ends with the proxy at the latest
		ended <- lockproxy.Do(t.Context(), rdb, "a",
			lockproxy.Options{Wait: lockproxy.WaitForever},
			func(context.Context, *held) error {
				p.Cmd.Process.Signal(syscall.SIGSTOP) // which takes a moment
				_, err := syscall.Wait4(p.Cmd.Process.Pid, nil, syscall.WUNTRACED, nil)
				return err
			})
	}()
	if err := testwait.For(t, "Do returns", ended); !errors.Is(err, lockproxy.ErrLost) {
		t.Errorf("%v", err)
	}
}

// The context of work ends with the loss, which its proxy knows long before the timeout.
func TestDoTellsOfTheLoss(t *testing.T) {
	t.Parallel()
	rdb := connect(t)
	err := lockproxy.Do(t.Context(), rdb, "a", lockproxy.Options{Timeout: time.Hour},
		func(ctx context.Context, h *held) error {
			if n, err := rdb.Do(ctx, "UNLOCK", "a", "FORCE").Int64(); n != 1 {
				t.Errorf("UNLOCK FORCE: %d, %v", n, err)
			}
			<-ctx.Done()
			if context.Cause(ctx) != lockproxy.ErrLost {
				t.Errorf("cause: %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
	if !errors.Is(err, lockproxy.ErrLost) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A program that is killed holds nothing any more.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	rdb := connect(t)
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holdAt+"="+rdb.Options().Addr)
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "held\n" {
		t.Fatalf("the holder says %q, %v", said, err)
	}
	if isFree(t, rdb, "a") {
		t.Error("the lock is free while it is held")
	}
	holder.Process.Kill()
	err = lockproxy.Do(t.Context(), rdb, "a", lockproxy.Options{Wait: time.Minute / 2},
		func(context.Context, *held) error { return nil })
	if err != nil {
		t.Errorf("after the holder was killed: %v", err)
	}
}

// A lock with a longest time is lost then, also if work hangs.
func TestDoEndsByMax(t *testing.T) {
	t.Parallel()
	rdb := connect(t)
	err := lockproxy.Do(t.Context(), rdb, "a", lockproxy.Options{Max: 300 * time.Millisecond},
		func(ctx context.Context, _ *held) error {
			<-ctx.Done()
			return nil
		})
	if !errors.Is(err, lockproxy.ErrLost) {
		t.Errorf("%v", err)
	}
}

// What the proxy says is an error of Redis.
func TestDoIsRefused(t *testing.T) {
	t.Parallel()
	rdb := connect(t)
	var refused redis.Error
	err := lockproxy.Do(t.Context(), rdb, "a", lockproxy.Options{Timeout: -time.Second},
		func(context.Context, *held) error { return nil })
	if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "ERR timeout") {
		t.Errorf("%v", err)
	}
}

// A connection on which nothing else moves is kept by pings, while Do waits and while work runs.
// The holder has a name.
func TestDoPings(t *testing.T) {
	t.Parallel()
	rdb := connect(t)
	var pings atomic.Int64
	options := redis.Options{Addr: rdb.Options().Addr}
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var dialer net.Dialer
		nc, err := dialer.DialContext(ctx, network, addr)
		return countedPings{nc, &pings}, err
	}
	counted := redis.NewClient(&options)
	defer counted.Close()
	two := func(while string) {
		t.Helper()
		from := pings.Load()
		testwait.Until(t, "two pings while it "+while, func() bool {
			return pings.Load() >= from+2
		})
	}
	token, err := rdb.Do(t.Context(), "LOCK", "a", 600).Int64()
	if err != nil {
		t.Fatal(err)
	}
	var waiter sync.WaitGroup
	waiter.Go(func() {
		err := lockproxy.Do(t.Context(), counted, "a",
			lockproxy.Options{Wait: lockproxy.WaitForever},
			func(context.Context, *held) error {
				two("holds the lock")
				info := fmt.Sprint(rdb.Do(t.Context(), "LOCKINFO", "a").Val())
				if !strings.Contains(info, fmt.Sprintf(":%d:", os.Getpid())) {
					t.Errorf("no name: %s", info)
				}
				return nil
			})
		if err != nil {
			t.Error(err)
		}
	})
	two("waits")
	rdb.Do(t.Context(), "UNLOCK", "a", token)
	waiter.Wait()
}

// countedPings counts what it writes.
type countedPings struct {
	net.Conn
	n *atomic.Int64
}

func (c countedPings) Write(b []byte) (int, error) {
	c.n.Add(int64(bytes.Count(bytes.ToUpper(b), []byte("\r\nPING\r\n"))))
	return c.Conn.Write(b)
}
