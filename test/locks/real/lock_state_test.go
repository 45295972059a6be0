package real_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
)

func TestLockUnderReplyOff(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Send("CLIENT REPLY OFF", "LOCK a 300", "SET x 1", "CLIENT REPLY ON", "EXISTS a",
		"CLIENT REPLY SKIP", "LOCK b 300", "EXISTS b", "CLIENT REPLY SKIP", "UNLOCK b", "EXISTS b")
	for _, want := range []string{"+OK\r\n", ":1\r\n", ":1\r\n", ":0\r\n"} {
		if got := c.Reply(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLockInSubscribeMode(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Send("SUBSCRIBE a b", "LOCK job 300", "UNSUBSCRIBE", "LOCK job 300")
	for _, want := range []string{"*3\r\n$9\r\nsubscribe", "*3\r\n$9\r\nsubscribe",
		"-ERR Can't execute 'lock': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET " +
			"are allowed in this context\r\n",
		"*3\r\n$11\r\nunsubscribe", "*3\r\n$11\r\nunsubscribe", ":"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.Expect("HELLO 3", "%7…")
	c.Send("SUBSCRIBE a", "UNLOCK job")
	for _, want := range []string{">3\r\n$9\r\nsubscribe", ":1\r\n"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
