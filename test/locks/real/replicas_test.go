package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

func TestMinReplicas(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t)
	replicas := testredis.StartReplicas(t, master, 2)
	p := proxytest.Start(t, master.URL(), proxytest.WithSlowReplicas(2))
	hasty := proxytest.Start(t, master.URL(), proxytest.WithReplicas(2))
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c, waiter := proxytest.Dial(t, hasty.Addr), proxytest.Dial(t, hasty.Addr)
	missing := func(conn *proxytest.Conn, command, outcome string) {
		t.Helper()
		if command != "" {
			conn.Send(command)
		}
		got := conn.Reply()
		for _, n := range []string{"0", "1"} {
			if got == "-NOREPLICAS "+n+" of 2 replicas acknowledged it within 300ms: "+outcome+
				"\r\n" {
				return
			}
		}
		t.Errorf("%s: %q", command, got)
	}
	const notTaken = "the lock was not taken, try again"
	free := func(step, key string) {
		t.Helper()
		if got := master.Ask("EXISTS", key); got != ":0" {
			t.Errorf("%s: the lock is there", step)
		}
	}

	// A lock whose token was given is on both replicas.
	for i := range 50 {
		key := fmt.Sprintf("job%d", i)
		token := a.Lock(key + " 300")
		for _, replica := range replicas {
			if got := replica.Ask("EXISTS", key); got != ":1" {
				t.Fatalf("a token was given for a lock that a replica doesn't have: %s", got)
			}
		}
		a.Expect(proxytest.Unlock(key, token), ":1\r\n")
	}
	held := a.Lock("held 300")
	session := a.Lock("session 300 SESSION")
	owned := a.Lock("owned 300 OWNER me")
	waiter.Send("LOCK held 300 WAIT 300")
	proxytest.AwaitWaiters(t, hasty, "held", 1)

	replicas[1].Pause()
	for _, how := range []string{"", " WAIT 5", " OWNER me", " SESSION"} {
		missing(c, "LOCK job 300"+how, notTaken)
		free("LOCK"+how, "job")
	}

	// A held lock is not taken away.
	missing(c, "LOCK owned 300 OWNER me",
		"the lock is its owner's as before, on the upstream alone for longer")
	missing(c, fmt.Sprintf("RELOCK owned %d 300", owned),
		"the new timeout holds on the upstream alone, try again")
	c.Expect("LOCK held 300", "$-1\r\n")
	c.Expect(fmt.Sprintf("RELOCK held %d 300", held+1), ":0\r\n")
	c.Expect("LOCK owned 300", "$-1\r\n")

	// A release succeeds, but the next waiter isn't told, and holds nothing.
	c.Expect(proxytest.Unlock("held", held), ":1\r\n")
	missing(waiter, "", notTaken)
	free("hand-over", "held")
	a.Expect(proxytest.Unlock("session", session), ":1\r\n")

	replicas[1].Resume()
	a.Lock("job 300") // as soon as the replica acknowledges it
	next := a.Lock("held 300 WAIT 300")
	b.Send("LOCK held 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "held", 1)
	a.Expect(proxytest.Unlock("held", next), ":1\r\n")
	if token := proxytest.Token(t, b.Reply()); token <= next || next <= held {
		t.Errorf("tokens %d, %d, %d", held, next, token)
	}
	for _, replica := range replicas {
		if got := replica.Ask("EXISTS", "held"); got != ":1" {
			t.Errorf("handed over, but not on a replica: %s", got)
		}
	}
}

// Many clients wait while no replica answers: each gets the
// error, and none gets a lock that it does not hold.
func TestMinReplicasOfAQueue(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t)
	replica := testredis.StartReplicas(t, master, 1)[0]
	p := proxytest.Start(t, master.URL(), proxytest.WithReplicas(1))
	safe := proxytest.Dial(t, proxytest.Start(t, master.URL(), proxytest.WithSlowReplicas(1)).Addr)
	holder := proxytest.Dial(t, p.Addr)
	token := safe.Lock("job 300")
	var waiters []*proxytest.Conn
	for range 4 {
		c := proxytest.Dial(t, p.Addr)
		c.Send("LOCK job 300 WAIT 300")
		waiters = append(waiters, c)
	}
	proxytest.AwaitWaiters(t, p, "job", len(waiters))
	replica.Pause()
	holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
	for i, c := range waiters {
		if got := c.Reply(); !strings.HasPrefix(got, "-NOREPLICAS 0 of 1 replicas") {
			t.Errorf("waiter %d: %q", i, got)
		}
	}
	if got := master.Ask("EXISTS", "job"); got != ":0" {
		t.Errorf("the lock is still there: %s", got)
	}
	replica.Resume()
	safe.Lock("job 300 WAIT 300")
}

// A client that may not WAIT is told why it gets no lock.
func TestMinReplicasWithoutTheRight(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t)
	testredis.StartReplicas(t, master, 1)
	master.Ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-wait")
	p := proxytest.Start(t, master.URL(), proxytest.WithReplicas(1))
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH app pw", "+OK\r\n")
	c.Expect("LOCK job 300",
		"-NOREPLICAS the upstream does not tell how many replicas acknowledged it (NOPERM …")
	if got := master.Ask("EXISTS", "job"); got != ":0" {
		t.Errorf("the lock was left behind: %s", got)
	}
}

// The upstream is cut off from its replica, still serves, and dies; the replica takes its place.
// Without --min-replicas a lock that was given in between is lost, and given again while its holder
// has it. With it, none is given.
func TestFailoverOfLocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		minReplicas   int
		lost, granted int // of the locks taken before the cut, and after it
	}{{0, 0, 10}, {1, 0, 0}} {
		t.Run(fmt.Sprintf("min-replicas %d", c.minReplicas), func(t *testing.T) {
			master := testredis.Start(t)
			link := testredis.StartLink(t, master.Addr())
			host, port, _ := strings.Cut(link.Addr(), ":")
			master.SyncAtOnce()
			replica := testredis.Start(t, "--replicaof", host, port)
			replica.WaitInSync()
			before := proxytest.Start(t, master.URL(), proxytest.WithSlowReplicas(c.minReplicas))
			hasty := proxytest.Start(t, master.URL(), proxytest.WithReplicas(c.minReplicas))
			after := proxytest.Start(t, replica.URL(), nil)
			client := proxytest.Dial(t, before.Addr)
			early, late := map[string]int64{}, map[string]int64{}
			for i := range 10 {
				key := fmt.Sprintf("early%d", i)
				early[key] = client.Lock(key + " 300")
			}
			if c.minReplicas == 0 {
				testwait.Until(t, "the replica has them", func() bool {
					return replica.Ask("EXISTS", "early9") == ":1"
				})
			}
			link.Hold()
			client = proxytest.Dial(t, hasty.Addr)
			for i := range 10 {
				key := fmt.Sprintf("late%d", i)
				if got := client.Do("LOCK " + key + " 300"); got[0] == ':' {
					late[key] = proxytest.Token(t, got)
				} else if !strings.HasPrefix(got, "-NOREPLICAS ") {
					t.Errorf("LOCK %s: %q", key, got)
				} else if is := master.Ask("EXISTS", key); is != ":0" {
					t.Errorf("LOCK %s says that it was not taken, EXISTS %s", key, is)
				}
			}
			master.Kill()
			link.Cut()
			if got := replica.Ask("REPLICAOF", "NO", "ONE"); got != "+OK" {
				t.Fatal(got)
			}
			other := proxytest.Dial(t, after.Addr)
			again := func(locks map[string]int64) (n int) {
				for key, token := range locks {
					got := other.Do("LOCK " + key + " 300")
					if got == "$-1\r\n" {
						other.Expect(fmt.Sprintf("RELOCK %s %d 300", key, token), ":1\r\n")
						continue
					}
					n++
					if proxytest.Token(t, got) <= token {
						t.Errorf("%s: token %d went back to %s", key, token, got)
					}
				}
				return n
			}
			lostEarly, lostLate := again(early), again(late)
			t.Logf(
				"min-replicas %d: of 10 locks before the cut %d were given again; after it "+
					"%d were given, and %d of them again",
				c.minReplicas, lostEarly, len(late), lostLate)
			if lostEarly != c.lost || len(late) != c.granted || lostLate != c.granted {
				t.Errorf("want %d, %d, %d", c.lost, c.granted, c.granted)
			}
		})
	}
}
