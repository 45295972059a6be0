package virtual_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// dialerThatHangs opens no connection while hangs is true, and is done with those until the test
// ends.
func dialerThatHangs(t *testing.T, hangs *atomic.Bool) dialer {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !hangs.Load() {
			return virtualnet.Dial(ctx, network, addr)
		}
		select {
		case <-ctx.Done():
		case <-over:
		}
		return nil, context.DeadlineExceeded
	}
}

// noting is dial that notes what it has opened.
func noting(opened chan<- net.Conn, dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := dial(ctx, network, addr)
		if err == nil {
			opened <- nc
		}
		return nc, err
	}
}

// A client whose request needs a connection to an upstream that accepts none is answered once
// --upstream-dial-timeout has passed, and not after a second dial: whether it is new, had a
// connection of its own or shared one, and for a LOCK whose wait is over by then.
func TestOneDialTimeoutForARequest(t *testing.T) {
	const bound = 5 * time.Second
	for _, before := range []string{"new", "shares", "own", "told before"} {
		for _, request := range []string{
			"GET k", "MULTI", "SUBSCRIBE x", "LOCK a 60", "LOCK a 60 WAIT 3", "LOCKALL 60 1 a WAIT 3",
			"ONCE a 60 WAIT 3", "UNLOCK a 1", "FENCE a 1 GET k",
		} {
			virtualtest.Run(t, func(t *testing.T) {
				store := virtualtest.StartStore(t)
				var silent atomic.Bool
				p := proxytest.Start(t, store.URL(), func(cfg *proxy.Config) {
					cfg.DialTimeout, cfg.HomeIdle = bound, 10*time.Second
					cfg.Upstream.Dialer = dialerThatHangs(t, &silent)
				})
				c := proxytest.Dial(t, p.Addr)
				c.Expect("SET k v", "+OK\r\n")
				if before == "own" {
					c.Expect("MULTI", "+OK\r\n")
					c.Expect("EXEC", "*0\r\n")
				}
				silent.Store(true)
				store.Kill()
				switch before {
				case "new":
					time.Sleep(time.Minute)
					c = proxytest.Dial(t, p.Addr)
				case "told before":
					c.Expect("GET k", "-UPSTREAM …")
				}
				asked := time.Now()
				got := c.Do(request)
				took := time.Since(asked)
				if !strings.HasPrefix(got, "-UPSTREAM ") || took > bound+bound/4 {
					t.Errorf("%s, of a client that is %q: %q after %v", request, before, got, took)
				}
			})
		}
	}
}

// A client that was answered by the failure to connect it is served as soon as the upstream is
// back.
func TestFailureToConnectIsForgotten(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		store.Kill()
		time.Sleep(time.Minute)
		c := proxytest.Dial(t, p.Addr)
		c.Expect("GET k", "-UPSTREAM …")
		late := proxytest.Dial(t, p.Addr)
		time.Sleep(time.Minute)
		store.Restart()
		c.Expect("GET k", "$-1\r\n")
		late.Expect("GET k", "$-1\r\n")
	})
}

// A shared connection that is lost and hangs while it is opened again keeps a free lock from
// nobody: those that wait for it are asked for by other connections.
func TestWaitersConnectionHangsWhileItIsOpened(t *testing.T) {
	for _, command := range []string{
		"LOCK a 60 WAIT 0", "LOCKALL 60 2 a b WAIT 0", "LOCK a 60 SHARED WAIT 0",
	} {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			var hangs atomic.Bool
			opened := make(chan net.Conn, 100)
			p := proxytest.Start(t, store.URL(), func(cfg *proxy.Config) {
				cfg.Dedicated, cfg.DialTimeout = false, time.Minute
				cfg.Upstream.Dialer = noting(opened, dialerThatHangs(t, &hangs))
			})
			holder := proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
			token := holder.Lock("a 600")
			first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			first.Send(command)
			proxytest.AwaitWaiters(t, p, "a", 1)
			second.Send("LOCK a 60 WAIT 0")
			proxytest.AwaitWaiters(t, p, "a", 2)
			time.Sleep(10 * time.Second)
			hangs.Store(true)
			for len(opened) > 0 {
				(<-opened).Close()
			}
			time.Sleep(time.Millisecond)
			holder.Expect(fmt.Sprint("UNLOCK a ", token), ":1\r\n")
			time.Sleep(500 * time.Millisecond)
			hangs.Store(false)
			freed := time.Now()
			got := first.Reply()
			if took := time.Since(freed); got[0] != ':' || took > 3*time.Second {
				t.Errorf("%s: %q after %v", command, got, took)
			}
			store.Ask("DEL", "a")
			proxytest.Token(t, second.Reply())
		})
	}
}

// A wait that found no connection says nothing of the requests behind it: they are answered as
// those of others.
func TestRequestBehindAWaitWithoutAConnection(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		var hangs atomic.Bool
		opened := make(chan net.Conn, 100)
		p := proxytest.Start(t, store.URL(), func(cfg *proxy.Config) {
			cfg.Dedicated, cfg.DialTimeout = false, time.Minute
			cfg.Upstream.Dialer = noting(opened, func(
				ctx context.Context, network, addr string,
			) (net.Conn, error) {
				for hangs.Load() && ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				return virtualnet.Dial(ctx, network, addr)
			})
		})
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		a.Expect("SET k v", "+OK\r\n")
		b.Expect("SET k v", "+OK\r\n")
		time.Sleep(10 * time.Second)
		hangs.Store(true)
		for len(opened) > 0 {
			(<-opened).Close()
		}
		time.Sleep(time.Millisecond)
		a.WriteRaw("LOCK a 60 WAIT 0.5\r\nGET k\r\n")
		b.Send("GET k")
		time.Sleep(6 * time.Second)
		hangs.Store(false)
		if got := a.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("LOCK: %q", got)
		}
		if got, others := a.Reply(), b.Reply(); got != "$1\r\nv\r\n" || others != got {
			t.Errorf("GET behind it: %q, another client's: %q", got, others)
		}
	})
}
