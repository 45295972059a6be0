package locks_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

func TestMinReplicas(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t)
	replicas := testredis.StartReplicas(t, master, 2)
	p := proxytest.Start(t, master.URL(), proxytest.WithReplicas(2))
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	const missing = "-NOREPLICAS 1 of 2 replicas acknowledged it within 300ms: "
	free := func(step, key string) {
		t.Helper()
		if got := master.Ask("EXISTS", key); got != ":0" {
			t.Errorf("%s: the lock is there", step)
		}
	}

	// A lock whose token was given is on both replicas.
	for i := range 50 {
		key := fmt.Sprintf("job%d", i)
		token := a.Lock(key + " 30")
		for _, replica := range replicas {
			if got := replica.Ask("EXISTS", key); got != ":1" {
				t.Fatalf("a token was given for a lock that a replica doesn't have: %s", got)
			}
		}
		a.Expect(proxytest.Unlock(key, token), ":1\r\n")
	}
	held := a.Lock("held 30")
	session := a.Lock("session 30 SESSION")
	owned := a.Lock("owned 30 OWNER me")
	b.Send("LOCK held 30 WAIT 20")
	proxytest.AwaitWaiters(t, p, "held", 1)

	replicas[1].Pause()
	c := proxytest.Dial(t, p.Addr)
	began := time.Now()
	c.Expect("LOCK job 30", missing+"the lock was not taken, try again\r\n")
	if took := time.Since(began); took < proxytest.ReplicaTimeout {
		t.Errorf("NOREPLICAS after %v", took)
	}
	free("LOCK", "job")
	c.Expect("LOCK job 30 WAIT 5", missing+"the lock was not taken, try again\r\n")
	free("LOCK WAIT", "job")
	c.Expect("LOCK job 30 OWNER me", missing+"the lock was not taken, try again\r\n")
	free("LOCK OWNER", "job")
	c.Expect("LOCK job 30 SESSION", missing+"the lock was not taken, try again\r\n")
	free("LOCK SESSION", "job")

	// A held lock is not taken away.
	c.Expect("LOCK owned 30 OWNER me", missing+
		"the lock is its owner's as before, on the upstream alone for longer\r\n")
	c.Expect(fmt.Sprintf("RELOCK owned %d 30", owned), missing+
		"the lock may run for longer on the upstream alone, try again\r\n")
	c.Expect("LOCK held 30", "$-1\r\n")
	c.Expect(fmt.Sprintf("RELOCK held %d 30", held+1), ":0\r\n")
	c.Expect("LOCK owned 30", "$-1\r\n")

	// A release succeeds, but the next waiter isn't told, and holds nothing.
	a.Expect(proxytest.Unlock("held", held), ":1\r\n")
	if got := b.Reply(); got != missing+"the lock was not taken, try again\r\n" {
		t.Errorf("the waiter: %q", got)
	}
	free("hand-over", "held")
	a.Expect(proxytest.Unlock("session", session), ":1\r\n")

	replicas[1].Resume()
	replicas[1].WaitInSync()
	testwait.Until(t, "locks are given again", func() bool {
		return !strings.HasPrefix(c.Do("LOCK job 30"), "-")
	})
	next := a.Lock("held 30")
	b.Send("LOCK held 30 WAIT 20")
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
	holder := proxytest.Dial(t, p.Addr)
	token := holder.Lock("job 30")
	var waiters []*proxytest.Conn
	for range 4 {
		c := proxytest.Dial(t, p.Addr)
		c.Send("LOCK job 30 WAIT 20")
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
	replica.WaitInSync()
	holder.Lock("job 30")
}

// A session lock is trusted only as far as replicas have it.
func TestMinReplicasOfASessionLock(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t)
	replica := testredis.StartReplicas(t, master, 1)[0]
	p := proxytest.Start(t, master.URL(), proxytest.WithReplicas(1))
	c := proxytest.Dial(t, p.Addr)
	c.Expect("HELLO 3", "%…")
	token := c.Lock("job 1.5 SESSION")
	time.Sleep(2 * time.Second)
	c.Expect("LOCK job 1", "_\r\n") // renewed
	replica.Pause()
	want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n$3\r\njob\r\n:%d\r\n", token)
	if got, err := c.TryReply(); got != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
	replica.Resume()
}

// A session lock that replicas don't have is lost when its time is over, however long
// --replica-timeout is.
func TestMinReplicasOfASessionLockInTime(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t)
	replica := testredis.StartReplicas(t, master, 1)[0]
	p := proxytest.Start(t, master.URL(), func(cfg *proxy.Config) {
		cfg.Locks.Durability = lockcmd.Durability{MinReplicas: 1, ReplicaTimeout: time.Minute}
	})
	master.Ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-client|tracking")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH app pw", "+OK\r\n")
	c.Lock("job 0.5 SESSION")
	replica.Pause()
	if _, err := c.TryReply(); err != io.EOF {
		t.Errorf("%v, and not the end of the connection", err)
	}
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
	c.Expect("LOCK job 30",
		"-NOREPLICAS the upstream does not tell how many replicas acknowledged it (NOPERM …")
	if got := master.Ask("EXISTS", "job"); got != ":0" {
		t.Errorf("the lock was left behind: %s", got)
	}
}

// acknowledgedLock takes a lock. On a busy machine a replica can be
// late to acknowledge it: only then the test asks once more, and the
// lock must be free, since the reply was that it was not taken.
func acknowledgedLock(t *testing.T, client *proxytest.Conn, key string, replicas int) int64 {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		got := client.Do("LOCK " + key + " 60")
		switch {
		case got[0] == ':':
			return proxytest.Token(t, got)
		case replicas == 0 ||
			!strings.HasPrefix(got, "-NOREPLICAS 0 of 1 replicas acknowledged it"):
			t.Fatalf("LOCK %s: %q", key, got)
		}
		t.Logf("LOCK %s: %q", key, got)
	}
	t.Fatal("the replica doesn't acknowledge")
	return 0
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
			before, after := proxytest.Start(t, master.URL(),
				proxytest.WithReplicas(c.minReplicas)), proxytest.Start(t, replica.URL(), nil)
			client := proxytest.Dial(t, before.Addr)
			early, late := map[string]int64{}, map[string]int64{}
			for i := range 10 {
				key := fmt.Sprintf("early%d", i)
				early[key] = acknowledgedLock(t, client, key, c.minReplicas)
			}
			if c.minReplicas == 0 {
				testwait.Until(t, "the replica has them", func() bool {
					return replica.Ask("EXISTS", "early9") == ":1"
				})
			}
			link.Hold()
			for i := range 10 {
				key := fmt.Sprintf("late%d", i)
				if got := client.Do("LOCK " + key + " 60"); got[0] == ':' {
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
					got := other.Do("LOCK " + key + " 60")
					if got == "$-1\r\n" {
						other.Expect(fmt.Sprintf("RELOCK %s %d 60", key, token), ":1\r\n")
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
