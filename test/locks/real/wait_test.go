package real_test

import (
	"context"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

func TestWaitersOfDifferentUsers(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--user", "app", "on", ">pw", "~app:*", "&*", "+@all",
		"--user", "other", "on", ">pw", "~other:*", "+@all")
	root, app, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	app.Expect("AUTH app pw", "+OK\r\n")
	other.Expect("AUTH other pw", "+OK\r\n")
	root.Lock("app:x 300")
	other.Expect("LOCK app:x 300 WAIT 300", "-NOPERM…")
	root2 := proxytest.Dial(t, p.Addr)
	root2.Send("LOCK app:x 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "app:x", 1)
	other.Expect("LOCK app:x 300 WAIT 300", "-NOPERM…") // not only at the end of its wait
	app.Send("LOCK app:x 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "app:x", 2)
	for _, c := range []*proxytest.Conn{root, root2} {
		c.Expect("UNLOCK app:x", ":1\r\n")
		next := map[*proxytest.Conn]*proxytest.Conn{root: root2, root2: app}[c]
		if got := next.Reply(); got[0] != ':' {
			t.Errorf("%q", got)
		}
	}
	app.Expect("UNLOCK app:x", ":1\r\n")
	// A release by a user that may not touch the lock's key changes nothing.
	root.Lock("app:x 300")
	other.Expect("UNLOCK app:x FORCE", "-NOPERM…")
	_ = server
}

// A waiter whose proxy is killed or told to stop leaves the queue.
func TestWaitersOfAStoppedProxy(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	dying, p := proxytest.StartProcess(t, "--upstream", server.URL()),
		proxytest.Start(t, server.URL(), nil)
	holder, gone, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, dying.Addr),
		proxytest.Dial(t, p.Addr)
	holder.Lock("job 300")
	gone.Send("LOCK job 300 WAIT 0")
	awaitPlaces(t, next, "job", 1)
	next.Send("LOCK job 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "job", 1)
	dying.Cmd.Process.Kill()
	dying.Ends(t)
	holder.Expect("UNLOCK job", ":1\r\n")
	if got := next.Reply(); got[0] != ':' {
		t.Errorf("%q", got)
	}
	draining := proxytest.Start(t, server.URL(), nil)
	waiting := proxytest.Dial(t, draining.Addr)
	waiting.Send("LOCK job 300 WAIT 0")
	proxytest.AwaitWaiters(t, draining, "job", 1)
	if err := draining.Server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if got := waiting.Reply(); !strings.HasPrefix(got, "-TRYAGAIN the wait was ended") {
		t.Errorf("told %q", got)
	}
}

// A waiter whose client hangs up leaves the queue at once and never keeps a lock.
func TestWaiterHangsUp(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	holder := proxytest.Dial(t, p.Addr)
	holder.Lock("job 300")
	gone := proxytest.Dial(t, p.Addr)
	gone.Send("LOCK job 300 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	next := proxytest.Dial(t, p.Addr)
	next.Send("LOCK job 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "job", 2)
	gone.Close()
	proxytest.AwaitWaiters(t, p, "job", 1)
	holder.Expect("UNLOCK job", ":1\r\n")
	if got := next.Reply(); got[0] != ':' {
		t.Errorf("%q", got)
	}
	next.Expect("UNLOCK job", ":1\r\n")

	// Hang-ups can cross with grants: the lock goes to the waiter that is still there. Without
	// SESSION it goes there if the token can't have been read, which is tested in virtual time.
	stayer := proxytest.Dial(t, p.Addr)
	for range 30 {
		holder.Lock("job 300")
		gone := proxytest.Dial(t, p.Addr)
		gone.Send("LOCK job 300 SESSION WAIT 0")
		proxytest.AwaitWaiters(t, p, "job", 1)
		stayer.Send("LOCK job 300 WAIT 300")
		go gone.Close()
		holder.Expect("UNLOCK job", ":1\r\n")
		if got := stayer.Reply(); got[0] != ':' {
			t.Fatalf("%q", got)
		}
		stayer.Expect("UNLOCK job", ":1\r\n")
	}
}
