package real_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// clientID is the number that a client is told.
func clientID(c *proxytest.Conn) string {
	return regexp.MustCompile(`\d+`).FindString(c.Do("CLIENT ID"))
}

// blockedIn is the number of a client at a server whose command is running and waits, "" for none.
func blockedIn(s *testredis.Server, command string) string {
	found := regexp.MustCompile(`id=(\d+) [^\n]*flags=bU? [^\n]*cmd=` + command + ` `).
		FindStringSubmatch(s.Ask("CLIENT", "LIST"))
	if found == nil {
		return ""
	}
	return found[1]
}

// What the proxy asks Redis for itself on a client's connection is not the client's: neither CLIENT
// UNBLOCK of the client ends it, nor one at Redis of the connection. The client does not wait for
// others, and is told nothing but that it has the lock.
func TestUnblockEndsNoConfirmation(t *testing.T) {
	t.Parallel()
	for name, at := range startReplicated(t) {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, at.url, proxytest.WithSlowReplicas(1))
			c, admin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			id := clientID(c)
			at.replica.Pause()
			for _, lock := range []string{"LOCK {job} 600", "LOCK {job} 600 WAIT 0 OWNER o"} {
				c.Send(lock)
				testwait.Until(t, "it waits for the replica", func() bool {
					return blockedIn(at.master, "wait") != ""
				})
				for range 3 {
					at.master.Ask("CLIENT", "UNBLOCK", blockedIn(at.master, "wait"), "ERROR")
					testwait.Until(t, "it waits for the replica again", func() bool {
						return blockedIn(at.master, "wait") != ""
					})
				}
				if lock == "LOCK {job} 600" {
					admin.Expect("CLIENT UNBLOCK "+id, ":0\r\n")
					admin.Expect("CLIENT UNBLOCK "+id+" ERROR", ":0\r\n")
				}
				at.replica.Resume()
				c.Expect(proxytest.Unlock("{job}", proxytest.Token(t, c.Reply())), ":1\r\n")
				at.replica.Pause()
			}
			at.replica.Resume()
		})
	}
}

// Nor does a CLIENT UNBLOCK end it that is on its way when the script is, behind which the
// confirmation is asked for: Redis answers 1 to one that it has while the client is held back.
func TestUnblockBeforeAConfirmation(t *testing.T) {
	t.Parallel()
	for name, at := range startReplicated(t) {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, at.url, proxytest.WithSlowReplicas(1))
			c, admin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			id := clientID(c)
			c.Lock("{job} 600")
			at.master.Ask("CLIENT", "PAUSE", "100000", "WRITE")
			c.Send("LOCK {job}:2 600")
			testwait.Until(t, "the script is held back", func() bool {
				return blockedIn(at.master, "evalsha") != ""
			})
			admin.Expect("CLIENT UNBLOCK "+id, ":0\r\n")
			admin.Expect("CLIENT UNBLOCK "+id+" ERROR", ":0\r\n")
			at.master.Ask("CLIENT", "UNPAUSE")
			proxytest.Token(t, c.Reply())
			c.Expect("ECHO a", "$1\r\na\r\n")
		})
	}
}

// Nor does one end it that came before the lock command, and meets its confirmation at Redis. One
// that ends what the client itself waited for at Redis is told so, whatever it does then.
func TestUnblockMeetsAConfirmation(t *testing.T) {
	t.Parallel()
	for name, at := range startReplicated(t) {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, at.url, proxytest.WithSlowReplicas(1))
			c, admin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			id := clientID(c)
			admin.Send("BLPOP {job}:gate 0")
			testwait.Until(t, "it waits at Redis", func() bool {
				return blockedIn(at.master, "blpop") != ""
			})
			admin.Send("CLIENT UNBLOCK " + id)
			admin.Send("ECHO behind")
			at.replica.Pause()
			c.Send("LOCK {job} 600")
			testwait.Until(t, "it waits for the replica", func() bool {
				return blockedIn(at.master, "wait") != ""
			})
			at.master.Ask("LPUSH", "{job}:gate", "open")
			admin.WantReply("*2\r\n$10\r\n{job}:gate\r\n$4\r\nopen\r\n")
			admin.WantReply(":0\r\n")
			admin.WantReply("$6\r\nbehind\r\n")
			at.replica.Resume()
			c.Expect(proxytest.Unlock("{job}", proxytest.Token(t, c.Reply())), ":1\r\n")

			c.Send("BLPOP {job}:gate 0")
			testwait.Until(t, "it waits at Redis", func() bool {
				return blockedIn(at.master, "blpop") != ""
			})
			at.replica.Pause()
			c.Send("LOCK {job} 600")
			admin.Expect("CLIENT UNBLOCK "+id, ":1\r\n")
			c.WantReply("*-1\r\n")
			at.replica.Resume()
			c.Expect(proxytest.Unlock("{job}", proxytest.Token(t, c.Reply())), ":1\r\n")
		})
	}
}

// A waiter is unblocked as soon as the request of another client arrives, however far Redis is, and
// whether the number was told before or not. Numbers that are nobody's are answered, too, also while
// the number of a client that waits can't be asked for.
func TestUnblockFarAway(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := testredis.StartFarLink(t, server.Addr(), 500*time.Millisecond)
	p := proxytest.Start(t, "redis://"+link.Addr(), nil)
	near := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
	near.Lock("job 600")
	near.Lock("other 600")
	made := proxytest.Token(t, near.Do("ONCE {v} 600"))
	admin := proxytest.Dial(t, p.Addr)
	told, greeted, unasked := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	toldID := clientID(told)
	greetedID := regexp.MustCompile(`id\r\n:(\d+)`).FindStringSubmatch(greeted.Do("HELLO 3"))[1]
	unasked.Expect("CLIENT SETNAME unasked", "+OK\r\n")
	unaskedID := regexp.MustCompile(`id=(\d+) [^\n]*name=unasked `).FindStringSubmatch(
		server.Ask("CLIENT", "LIST"))[1]
	for _, wait := range []string{"LOCKALL 600 2 other job WAIT 0", "ONCE {v} 600 WAIT 0"} {
		key := map[byte]string{'O': "{v}:once:tag"}[wait[0]]
		if key == "" {
			key = "job"
		}
		for _, c := range []*proxytest.Conn{told, greeted, unasked} {
			c.Send(wait)
		}
		proxytest.AwaitWaiters(t, p, key, 3)
		admin.Expect("CLIENT UNBLOCK "+toldID, ":1\r\n")
		told.WantReply("$-1\r\n")
		admin.Expect("CLIENT UNBLOCK "+greetedID+" ERROR", ":1\r\n")
		greeted.WantReply(unblocked)
		admin.Expect("CLIENT UNBLOCK "+unaskedID, ":1\r\n")
		unasked.WantReply("$-1\r\n")
		admin.Expect("CLIENT UNBLOCK "+unaskedID, ":0\r\n")
	}

	// Its number is asked for behind its BLPOP.
	busy := proxytest.Dial(t, p.Addr)
	busy.Send("BLPOP nothing 0")
	busy.Send("LOCK job 600 WAIT 0")
	testwait.Until(t, "it waits at Redis", func() bool { return blockedIn(server, "blpop") != "" })
	admin.Expect("CLIENT UNBLOCK 999999", ":0\r\n")
	admin.Expect("CLIENT UNBLOCK "+blockedIn(server, "blpop"), ":1\r\n")
	busy.WantReply("*-1\r\n")
	near.Expect(fmt.Sprintf("DONE {v} %d", made), ":1\r\n")
}
