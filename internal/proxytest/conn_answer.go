package proxytest

import (
	"fmt"
	"strings"
)

// Answer reads one reply and skips pushes.
func (c *Conn) Answer() string {
	c.T.Helper()
	for {
		if got := c.Reply(); got[0] != '>' {
			return got
		}
	}
}

// Asked sends one command and fails unless its reply, behind whatever pushes, begins with want.
func (c *Conn) Asked(command, want string) {
	c.T.Helper()
	c.Send(command)
	if got := c.Answer(); !strings.HasPrefix(got, want) {
		c.T.Fatalf("%s: got %.200q, want %q", command, got, want)
	}
}

// Echoed has three ways to the upstream answered: the client's own connection, a shared one, and a lock's.
func (c *Conn) Echoed(marker string) {
	c.T.Helper()
	echo := func(n int) {
		text := fmt.Sprintf("%s-%d", marker, n)
		c.Asked("ECHO "+text, fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
	}
	echo(1)
	echo(2)
	c.Asked("MULTI", "+OK\r\n")
	c.Asked("ECHO in", "+QUEUED\r\n")
	c.Asked("EXEC", "*1\r\n$2\r\nin\r\n")
	echo(3)
	c.Asked("WATCH k", "+OK\r\n")
	echo(4)
	c.Asked("UNWATCH", "+OK\r\n")
	echo(5)
	c.Asked("LOCK "+marker+" 10", ":")
	c.Asked("UNLOCK "+marker, ":1\r\n")
	c.Asked("CLIENT SETNAME "+marker, "+OK\r\n")
	echo(6)
}

func Bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
