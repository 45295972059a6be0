//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A client's LOCKINFO … CHANGED is answered when another client has the lock, when the lock is
// free, and at the end of the wait. The client that watches is in no line.
func TestChangedAnswersForAnotherHolder(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, standby := dial(0), dial(1), dial(0)
			names := func(token int64) {
				t.Helper()
				if got := standby.Reply(); !strings.Contains(got, fmt.Sprintf("token\r\n:%d\r\n", token)) {
					t.Errorf("the holder's token is %d: %q", token, got)
				}
			}
			watch := func(token int64) {
				standby.Send(fmt.Sprintf("LOCKINFO job CHANGED %d WAIT 0", token))
				time.Sleep(2 * time.Second)
			}
			standby.Expect("LOCKINFO job CHANGED 0 WAIT 3", "$-1\r\n")
			standby.Expect("LOCKINFO job CHANGED 7", "$-1\r\n")
			standby.Expect("LOCKINFO job CHANGED 7 WAIT 0", "$-1\r\n")

			watch(0)
			first := b.Lock("job 600 OWNER one")
			names(first)
			standby.Send(fmt.Sprintf("LOCKINFO job CHANGED %d WAIT 5", first))
			names(first) // at the end of its time
			watch(first)
			if got := a.Do("LOCKINFO job WAITERS"); got != "*0\r\n" {
				t.Errorf("a watch is in line: %q", got)
			}
			b.Expect(fmt.Sprintf("RELOCK job %d 300", first), ":1\r\n")
			time.Sleep(2 * time.Second)
			if again := b.Lock("job 600 OWNER one"); again != first {
				t.Errorf("the owner was given %d", again)
			}
			a.Send("LOCK job 5 WAIT 0")
			time.Sleep(time.Second)
			b.Expect("UNLOCK job", ":1\r\n")
			second := proxytest.Token(t, a.Reply())
			names(second)

			watch(second) // it expires
			if got := standby.Reply(); got != "$-1\r\n" {
				t.Errorf("the lock has expired: %q", got)
			}
			third := a.Lock("job 600")
			watch(third)
			b.Expect("UNLOCK job FORCE", ":1\r\n")
			standby.WantReply("$-1\r\n")

			fourth := a.Lock("job 600 SHARED")
			watch(fourth)
			fifth := b.Lock("job 60 SHARED")
			names(fifth)
			watch(fifth)
			b.Expect("UNLOCK job", ":1\r\n")
			names(fourth)
			watch(fourth)
			a.Expect("DEL job", ":1\r\n")
			standby.WantReply("$-1\r\n")
			watch(0)
			b.Expect("SET job other NX PX 60000", "+OK\r\n")
			if got := standby.Reply(); !strings.Contains(got, "kind\r\n$5\r\nother\r\n") {
				t.Errorf("another library has it: %q", got)
			}
		})
	})
}

// The wait of a LOCKINFO … CHANGED ends while Redis, or only the link to it, is silent: the client
// is told that nobody knows the holder. Afterwards its connection serves it as before.
func TestChangedEndsWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, store)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		holder, standby := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		for i := range 20 {
			token := holder.Lock("job 600 SHARED")
			standby.Send(fmt.Sprintf("LOCKINFO job CHANGED %d WAIT 5", token))
			time.Sleep(time.Duration(i) * 300 * time.Millisecond)
			arrived := standby.Arrived()
			link.Freeze()
			time.Sleep(9 * time.Second)
			if !standby.Arrived() {
				t.Errorf("%d: its wait goes on", i)
			}
			link.Thaw()
			time.Sleep(5 * time.Second)
			if got := standby.Reply(); !arrived &&
				!strings.HasPrefix(got, "-UPSTREAM has not answered for ") {
				t.Errorf("%d: %q", i, got)
			}
			standby.Expect("PING", "+PONG\r\n")
			holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
			standby.Expect(fmt.Sprintf("LOCKINFO job CHANGED %d WAIT 5", token), "$-1\r\n")
		}
	})
}
