//go:build !race

package virtual_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

func TestLockInfoAndScan(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Expect("LOCKINFO job", "$-1\r\n")
		token := c.Lock("job 30 OWNER me")
		for i, head := range []string{"*32\r\n", "%16\r\n"} {
			c.Do(fmt.Sprint("HELLO ", i+2))
			got := c.Do("LOCKINFO job")
			for _, want := range []string{head,
				"$5\r\nstate\r\n$4\r\nheld\r\n$4\r\nkind\r\n$9\r\nlockproxy\r\n$5\r\ntoken\r\n:" +
					strconv.FormatInt(token, 10),
				"$5\r\nowner\r\n$2\r\nme\r\n$6\r\nclient\r\n", c.LocalAddr().String(),
				"$7\r\nsession\r\n:0\r\n$7\r\nwaiters\r\n:0\r\n"} {
				if !strings.Contains(got, want) {
					t.Errorf("LOCKINFO: %q lacks %q", got, want)
				}
			}
		}
		direct := proxytest.GoRedis(t, server.Addr())
		direct.Set(proxytest.Ctx, "foreign", time.Now().Unix()+20, 0)
		direct.Set(proxytest.Ctx, "old", time.Now().Unix()-20, 0)
		direct.Set(proxytest.Ctx, "data", "x", 0)
		for key, want := range map[string][]string{"foreign": {"$4\r\nheld\r\n", "$9\r\ntimestamp\r\n"},
			"old": {"$7\r\nexpired\r\n", "$9\r\ntimestamp\r\n"}, "data": {"-WRONGTYPE"},
			"none": {"_\r\n"}} {
			got := c.Do("LOCKINFO " + key)
			for _, part := range want {
				if !strings.Contains(got, part) {
					t.Errorf("LOCKINFO %s: %q lacks %q", key, got, part)
				}
			}
		}

		held := map[string]bool{"job": true}
		for i := range 300 {
			key := fmt.Sprintf("{s%d}lock:%d", i%3, i)
			c.Lock(key + " 30")
			if i%3 == 0 {
				c.Expect("UNLOCK "+key, ":1\r\n")
			} else {
				held[key] = true
			}
		}
		found := map[string]bool{}
		rdb := proxytest.GoRedis(t, p.Addr)
		cursor := "0"
		for {
			page, err := rdb.Do(proxytest.Ctx, "LOCKSCAN", cursor, "COUNT", "50").Slice()
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range page[1].([]any) {
				found[key.(string)] = true
			}
			if cursor = page[0].(string); cursor == "0" {
				break
			}
		}
		for key := range held {
			if !found[key] {
				t.Errorf("%s is held and was not found", key)
			}
		}
		for key := range found {
			if !held[key] {
				t.Errorf("%s was found and is not held", key)
			}
		}
		scan := rdb.Do(proxytest.Ctx, "LOCKSCAN", "0", "MATCH", "jo?", "COUNT", "10000")
		if page, err := scan.Slice(); err != nil || fmt.Sprint(page) != "[0 [job]]" {
			t.Errorf("LOCKSCAN MATCH: %v, %v", page, err)
		}
	})
}

// Far from Redis, LOCKSCAN asks about the locks that it has found together, also if Redis has lost
// the script.
func TestLockscanAsksTogether(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, server)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		filler := proxytest.Dial(t, p.Addr)
		const locks = 200
		for i := range locks {
			filler.Send(fmt.Sprintf("LOCK k%d 600", i))
		}
		for range locks {
			filler.Reply()
		}
		c := proxytest.Dial(t, p.Addr)
		c.Expect("LOCKSCAN 0 MATCH none COUNT 10000", "*2\r\n$1\r\n0\r\n*0\r\n")
		server.Ask("SCRIPT", "FLUSH")
		link.Set(badlink.State{Latency: 50 * time.Millisecond})
		began := time.Now()
		if got := c.Do("LOCKSCAN 0 COUNT 10000"); strings.Count(got, "k") != locks {
			t.Errorf("%d locks are found: %q", strings.Count(got, "k"), got[:min(len(got), 100)])
		}
		// One by one it takes 20 s.
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Far from Redis, a command that takes many round trips ends soon after its client: a session lock
// must end with that.
func TestListsEndWithTheirClients(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		near, link := proxytest.Start(t, server.URL(), nil), proxytest.LinkTo(t, server)
		far := proxytest.Start(t, "redis://"+link.Addr(), nil)
		admin, filler := proxytest.Dial(t, near.Addr), proxytest.Dial(t, far.Addr)
		const locks = 3500
		for i := range locks {
			filler.Send(fmt.Sprintf("LOCK k%d 600", i))
		}
		for range locks {
			filler.Reply()
		}
		for i, command := range []string{"LOCKSCAN 0 COUNT 10000", "LOCKLOG COUNT 10000",
			"LOCKTOP COUNT 10000"} {
			link.Set(badlink.State{})
			c, session := proxytest.Dial(t, far.Addr), fmt.Sprint("session", i)
			c.Lock(session + " 600 SESSION")
			link.Set(badlink.State{Latency: 100 * time.Millisecond})
			c.Send(command)
			time.Sleep(300 * time.Millisecond)
			c.Close()
			closed := time.Now()
			testwait.Until(t, "the session lock is free", func() bool {
				return admin.Do("LOCKINFO "+session) == "$-1\r\n"
			})
			if took := time.Since(closed); took > 1500*time.Millisecond {
				t.Errorf("%s: the session lock was released after %v", command, took)
			}
		}
	})
}
