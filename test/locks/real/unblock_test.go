package real_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

const unblocked = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"

// CLIENT UNBLOCK through the same proxy ends a wait for a lock as it ends a BLPOP. The number of the
// client is that of CLIENT ID, whether it has asked for it or not.
func TestClientUnblock(t *testing.T) {
	t.Parallel()
	single := testredis.Start(t)
	cluster := testredis.StartCluster(t, 3, 0)
	for name, url := range map[string]string{"single": single.URL(), "cluster": cluster.URL()} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, url, nil)
			holder, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			token := proxytest.Token(t, holder.Do("LOCKALL 600 2 {job}a {job}b"))
			made := proxytest.Token(t, holder.Do("ONCE {job}v 600"))
			first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			second.Do("HELLO 3")
			number := func(c *proxytest.Conn) string {
				return regexp.MustCompile(`^:(\d+)\r\n$`).FindStringSubmatch(c.Do("CLIENT ID"))[1]
			}
			ids := []string{number(first), number(second)}
			for _, waits := range []string{"LOCK {job}a 600 WAIT 0", "LOCK {job}a 600 SHARED WAIT 600",
				"LOCKALL 600 2 {job}a {job}b WAIT 0", "LOCK {job}b 600 WAIT 0 OWNER o SESSION",
				"ONCE {job}v 600 WAIT 0", "ONCE {job}v 600 EARLY 9 WAIT 600"} {
				key := "{job}a"
				switch waits[:11] {
				case "LOCK {job}b":
					key = "{job}b"
				case "ONCE {job}v":
					key = "{job}v:once:tag"
				}
				for how, want := range map[string][2]string{"": {"$-1\r\n", "_\r\n"},
					" TIMEOUT": {"$-1\r\n", "_\r\n"}, " error": {unblocked, unblocked}} {
					first.Send(waits)
					proxytest.AwaitWaiters(t, p, key, 1)
					second.Send(waits)
					proxytest.AwaitWaiters(t, p, key, 2)
					for i, c := range []*proxytest.Conn{first, second} {
						other.Expect("CLIENT UNBLOCK "+ids[i]+how, ":1\r\n")
						if got := c.Reply(); got != want[i] {
							t.Errorf("%s: UNBLOCK%s: %q", waits, how, got)
						}
						other.Expect("CLIENT UNBLOCK "+ids[i]+how, ":0\r\n")
					}
				}
			}
			first.Send("BLPOP {job}list 0")
			for other.Do("CLIENT UNBLOCK "+ids[0]) == ":0\r\n" {
			}
			first.WantReply("*-1\r\n")

			// Nothing is left of them: the lock is the next waiter's.
			first.Send("LOCK {job}a 600 WAIT 0")
			proxytest.AwaitWaiters(t, p, "{job}a", 1)
			holder.Expect(fmt.Sprintf("UNLOCKALL %d 2 {job}a {job}b", token), ":2\r\n")
			proxytest.Token(t, first.Reply())
			first.Expect("UNLOCK {job}a", ":1\r\n")
			other.Expect("LOCKINFO {job}a", "$-1\r\n")
			other.Expect("LOCKINFO {job}b", "$-1\r\n")
			holder.Expect(fmt.Sprintf("DONE {job}v %d", made), ":1\r\n")
			other.Expect("LOCKINFO {job}v:once:tag", "$-1\r\n")
		})
	}
}

// A client is found by the number that CLIENT LIST tells others. Who may not CLIENT UNBLOCK ends no
// wait, nor does a wrong number.
func TestClientUnblockByAnother(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t, "--user", "half", "on", ">pw", "~*", "+@all", "-client|unblock")
	holder, waiter, half, admin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	half.Expect("AUTH half pw", "+OK\r\n")
	holder.Lock("job 600")
	waiter.Expect("CLIENT SETNAME waiter", "+OK\r\n")
	waiter.Send("LOCK job 600 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	found := regexp.MustCompile(`id=(\d+) [^\n]*name=waiter`).FindStringSubmatch(
		admin.Do("CLIENT LIST"))
	if found == nil {
		t.Fatal("the waiter is not in CLIENT LIST")
	}
	half.Expect("CLIENT UNBLOCK "+found[1], "-NOPERM …")
	for command, want := range map[string]string{
		"CLIENT UNBLOCK 999999":              ":0\r\n",
		"CLIENT UNBLOCK x":                   "-ERR value is not an integer or out of range\r\n",
		"CLIENT UNBLOCK":                     "-ERR wrong number of arguments …",
		"CLIENT UNBLOCK " + found[1] + " no": "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR\r\n",
	} {
		admin.Expect(command, want)
	}
	if n := proxytest.Waiters(t, p, "job"); n != 1 {
		t.Errorf("%d clients wait", n)
	}
	admin.Expect("CLIENT UNBLOCK "+found[1]+" ERROR", ":1\r\n")
	waiter.WantReply(unblocked)
}

// Redis takes a client for blocked whose script it holds back (CLIENT PAUSE). Once the client's wait
// has ended it is not, also while Redis still holds back what was asked for the wait.
func TestUnblockOnceWhileScriptsAreHeldBack(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, admin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	id := clientID(c)
	for range 2 {
		server.Ask("CLIENT", "PAUSE", "600000", "WRITE")
		c.Send("LOCK job 600 WAIT 0")
		testwait.Until(t, "it waits", func() bool { return p.Server.Stats().Locks.Waiters == 1 })
		testwait.Until(t, "its script is held back", func() bool {
			return strings.Contains(server.Ask("CLIENT", "LIST"), "cmd=evalsha")
		})
		admin.Expect("CLIENT UNBLOCK "+id, ":1\r\n")
		if got := c.Reply(); got != "$-1\r\n" {
			t.Fatalf("LOCK: %q", got)
		}
		for range 3 {
			admin.Expect("CLIENT UNBLOCK "+id+" ERROR", ":0\r\n")
		}
		server.Ask("CLIENT", "UNPAUSE")
		c.Expect("PING", "+PONG\r\n")
		testwait.Until(t, "what the script has taken is released", func() bool {
			return strings.HasPrefix(admin.Do("LOCKINFO job"), "$-1")
		})
	}
	c.Send("BLPOP list 0") // it is blocked in Redis now
	testwait.Until(t, "it is unblocked", func() bool {
		return admin.Do("CLIENT UNBLOCK "+id) == ":1\r\n"
	})
}

// Nor is a client blocked whose lock command waits for nobody. Redis would end by a fault of its own,
// if it is older than 2025.
func TestUnblockOfNoWaitWhileScriptsAreHeldBack(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, admin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	id := clientID(c)
	for _, command := range []string{"LOCK job 600", "UNLOCK job"} {
		server.Ask("CLIENT", "PAUSE", "600000", "WRITE")
		c.Send(command)
		testwait.Until(t, "its script is held back", func() bool {
			return strings.Contains(server.Ask("CLIENT", "LIST"), "cmd=eval")
		})
		for _, how := range []string{"", " TIMEOUT", " ERROR"} {
			admin.Expect("CLIENT UNBLOCK "+id+how, ":0\r\n")
		}
		server.Ask("CLIENT", "UNPAUSE")
		if got := c.Reply(); got[0] != ':' || got == ":0\r\n" {
			t.Errorf("%s: %q", command, got)
		}
	}
}
