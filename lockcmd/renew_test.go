package lockcmd

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/script"
)

// A client's RELOCK and another's LOCK, which finds that the same lock has expired, do not disturb
// each other. The race detector says so.
func TestRelockWhileAnotherTakesTheLock(t *testing.T) {
	connect := func(names.Identity) *redis.Client { return nil }
	l := New(Config{MaxTimeout: time.Minute}, "proxy", connect, hclog.NewNullLogger())
	defer l.Close()
	take := func(key, connection string, token int64) *held.Holder {
		h := &held.Holder{Connection: connection}
		l.recordAcquired(h, &held.Lock{Token: token, Request: script.Request{Key: key,
			Timeout: time.Nanosecond, Connection: connection, Number: "1"}},
			script.Attempt{Token: token, AskedAt: time.Now()})
		return h
	}
	for i := range 1000 {
		key := fmt.Sprint("job", i)
		first := take(key, "c", 7)
		var both sync.WaitGroup
		both.Go(func() { take(key, "d", 8) })
		both.Go(func() {
			l.renewals.Relocked(first, names.Lock{Key: key}, script.Proof{Kind: "token", Value: "7"},
				time.Nanosecond, 0)
		})
		both.Wait()
	}
}

// The proxy renews only so many locks.
func TestSessionLocksAreBounded(t *testing.T) {
	connect := func(names.Identity) *redis.Client { return nil }
	l := New(Config{MaxTimeout: time.Minute}, "proxy", connect, hclog.NewNullLogger())
	defer l.Close()
	l.Sessions.Count(names.Lock{Key: "all"}, held.MaxSessions)
	args := [][]byte{[]byte("job"), []byte("30"), []byte("SESSION")}
	step := l.beginLock(Client{Holder: &held.Holder{}}, args)
	if step.Call() != nil {
		t.Fatalf("%+v", step)
	}
	got, _ := step.Finish(script.Answer{}, nil)
	if !strings.Contains(fmt.Sprint(got), "renews 131072 session locks already") {
		t.Errorf("%v", got)
	}
}

// A session lock is renewed, and released, as its client has logged in since: the password that it
// had at its LOCK may not be good any more. TestLoginOfASessionLock of package held has the cases.
func TestRenewedAsTheNewLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan names.Identity, 100)
		connect := func(as names.Identity) *redis.Client {
			return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2,
				DisableIdentity: true, MaxRetries: -1,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					select {
					case asked <- as:
					default:
					}
					return virtualnet.Ones(ctx, network, addr)
				}})
		}
		l := New(Config{MaxTimeout: time.Hour}, "proxy", connect, hclog.NewNullLogger())
		var login atomic.Pointer[names.Identity]
		lost := make(chan int64, 1)
		holder := &held.Holder{Connection: "c", Login: func() names.Identity { return *login.Load() },
			LockLost: func(_ string, token int64) { lost <- token }}
		first := names.Identity{User: "app", Password: "one", LoggedIn: true, DB: 3}
		second := names.Identity{User: "app", Password: "two", LoggedIn: true}
		login.Store(&first)
		rs := lockRequests{{Key: "job", Timeout: 30 * time.Second, Session: true, Connection: "c",
			Number: "1"}}
		l.acquired(holder, rs.locks(first, 7), script.Attempt{Token: 7, AskedAt: time.Now()})
		connects := func(after string, want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			found := map[string]bool{}
			for len(asked) > 0 {
				as := <-asked
				if found[as.Password] = true; as.Password == "" {
					t.Errorf("%s: connected without a login", after)
				}
				if as.Password == "two" && as.DB != 3 && as.DB != 0 {
					t.Errorf("%s: database %d", after, as.DB)
				}
			}
			for _, password := range want {
				if !found[password] {
					t.Errorf("%s: connected as %v, want %s", after, found, password)
				}
			}
		}
		connects("the LOCK", "one")
		login.Store(&second)
		connects("another login", "two")
		login.Store(&names.Identity{})
		connects("a RESET")
		select {
		case <-lost:
			t.Error("the lock is lost")
		default:
		}
		l.Close()
	})
}

// A session lock with MAX is renewed until then, and is lost at that moment: not a renewal later,
// nor at the end of its timeout, which can be longer than MAX. Then it is released.
func TestMaxEndsASessionLock(t *testing.T) {
	for _, c := range []struct{ timeout, longest time.Duration }{
		{30 * time.Second, 100 * time.Second},
		{30 * time.Second, 10 * time.Minute},
		{time.Hour, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			connect := func(names.Identity) *redis.Client {
				return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2,
					DisableIdentity: true, MaxRetries: -1, Dialer: virtualnet.Ones})
			}
			l := New(Config{MaxTimeout: time.Hour}, "proxy", connect, hclog.NewNullLogger())
			lost := make(chan int64, 1)
			h := &held.Holder{Connection: "c",
				LockLost: func(_ string, token int64) { lost <- token }}
			began := time.Now()
			r := script.Request{Key: "job", Timeout: c.timeout, Session: true, Connection: "c",
				Number: "1", Longest: c.longest}
			l.acquired(h, lockRequests{r}.locks(names.Identity{}, 7),
				script.Attempt{Token: 7, AskedAt: began})
			time.Sleep(c.longest - time.Nanosecond)
			synctest.Wait()
			early := len(lost)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if at := len(lost); early != 0 || at != 1 || <-lost != 7 {
				t.Errorf("%+v: losses before MAX: %d, then: %d; want one then, of token 7", c, early, at)
			}
			if _, holds := h.Holds(); holds {
				t.Errorf("%+v: the connection still has the lock", c)
			}
			l.Close()
		})
	}
}
