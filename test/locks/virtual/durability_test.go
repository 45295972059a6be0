//go:build !race

package virtual_test

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// A session lock is renewed while replicas confirm that, or the disk, and lost otherwise.
func TestDurableSessionLock(t *testing.T) {
	replicas := func(n int) virtualtest.Answer {
		return func(client *server.Peer, _ []string) { client.WriteInt(n) }
	}
	disk := func(n int) virtualtest.Answer {
		return func(client *server.Peer, _ []string) {
			client.WriteLen(2)
			client.WriteInt(n)
			client.WriteInt(0)
		}
	}
	for name, c := range map[string]struct {
		durability lockcmd.Durability
		command    string
		answer     func(n int) virtualtest.Answer
	}{
		"replicas": {lockcmd.Durability{MinReplicas: 1}, "WAIT", replicas},
		"disk":     {lockcmd.Durability{RequireFsync: true}, "WAITAOF", disk},
	} {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			store.Answer(c.answer(1), c.command)
			c.durability.ReplicaTimeout = 300 * time.Millisecond
			p := proxytest.Start(t, store.URL(), func(cfg *proxy.Config) {
				cfg.Locks.Durability = c.durability
			})
			holder := proxytest.Dial(t, p.Addr)
			holder.Expect("HELLO 3", "%…")
			token := holder.Lock("job 1.5 SESSION")
			time.Sleep(10 * time.Second)
			proxytest.Dial(t, p.Addr).Expect("LOCK job 1", "$-1\r\n") // renewed
			store.Answer(c.answer(0), c.command)
			began := time.Now()
			want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n$3\r\njob\r\n:%d\r\n", token)
			if got, err := holder.TryReply(); got != want {
				t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
			}
			if took := time.Since(began); took > 1500*time.Millisecond {
				t.Errorf("%s: lost after %v", name, took)
			}
		})
	}
}

// A session lock that replicas don't have is lost when its time has expired, however long
// --replica-timeout is.
func TestDurableSessionLockInTime(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		confirms := func(n int, late bool) virtualtest.Answer {
			return func(client *server.Peer, args []string) {
				if ms, _ := strconv.Atoi(args[1]); late {
					time.Sleep(time.Duration(ms) * time.Millisecond)
				}
				client.WriteInt(n)
			}
		}
		store.Answer(confirms(1, false), "WAIT")
		p := proxytest.Start(t, store.URL(), func(cfg *proxy.Config) {
			cfg.Locks.Durability = lockcmd.Durability{MinReplicas: 1, ReplicaTimeout: time.Minute}
		})
		c := proxytest.Dial(t, p.Addr)
		c.Lock("job 0.5 SESSION")
		store.Answer(confirms(0, true), "WAIT")
		began := time.Now()
		if _, err := c.TryReply(); err != io.EOF {
			t.Errorf("%v, and not the end of the connection", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("lost after %v", took)
		}
	})
}

// Replicas do not confirm that a shared lock has become exclusive: its client has no lock any more,
// and a session is told so.
func TestRelockExclusiveIsNotConfirmed(t *testing.T) {
	replicas := func(n int) virtualtest.Answer {
		return func(client *server.Peer, args []string) {
			if ms, _ := strconv.Atoi(args[1]); n == 0 {
				time.Sleep(time.Duration(ms) * time.Millisecond)
			}
			client.WriteInt(n)
		}
	}
	for _, session := range []string{"", " SESSION"} {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			store.Answer(replicas(1), "WAIT")
			p := proxytest.Start(t, store.URL(), proxytest.WithReplicas(1))
			holder, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			holder.Expect("HELLO 3", "%…")
			token := holder.Lock("doc 60 SHARED" + session)
			store.Answer(replicas(0), "WAIT")
			got := holder.Do(relock("doc", token, "60 EXCLUSIVE"))
			lost := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n$3\r\ndoc\r\n:%d\r\n", token)
			if session != "" && got == lost {
				got, lost = holder.Reply(), ""
			}
			if !strings.HasPrefix(got, "-NOREPLICAS ") || session != "" && lost != "" {
				t.Errorf("%q, %q is still to come", got, lost)
			}
			store.Answer(replicas(1), "WAIT")
			other.Lock("doc 60")
			holder.Expect(proxytest.Unlock("doc", token), ":0\r\n")
		})
	}
}
