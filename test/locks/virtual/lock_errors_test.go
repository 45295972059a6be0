//go:build !race

package virtual_test

import (
	"fmt"
	"slices"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/syntax"
)

// outOfRange is the reply to a lock command whose timeout is arg.
func outOfRange(arg string) string {
	return fmt.Sprintf("-ERR timeout is not a float or out of range: %q (seconds, greater than 0, "+
		"at most 86400)\r\n", arg)
}

func TestLockErrors(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Expect("RPUSH list x", ":1\r\n")
		c.Expect("SET text hello", "+OK\r\n")
		c.Expect("SET counter 42", "+OK\r\n")
		for command, want := range map[string]string{
			"LOCK":              "-ERR wrong number of arguments for 'lock' command; see LOCK HELP\r\n",
			"LOCK k":            "-ERR wrong number of arguments for 'lock' command; see LOCK HELP\r\n",
			"UNLOCK":            "-ERR wrong number of arguments for 'unlock' command; see LOCK HELP\r\n",
			"UNLOCK a b c":      "-ERR wrong number of arguments for 'unlock' command; see LOCK HELP\r\n",
			"LOCK k ten":        outOfRange("ten"),
			"LOCK k inf":        outOfRange("inf"),
			"LOCK k nan":        outOfRange("nan"),
			"LOCK k 1e400":      outOfRange("1e400"),
			"LOCK k 0":          outOfRange("0"),
			"LOCK k 10s":        outOfRange("10s"),
			"LOCK k 86400.001":  outOfRange("86400.001"),
			"LOCK k -1e-400":    "-ERR timeout is negative: \"-1e-400\" (seconds, greater than 0, at most 86400)\r\n",
			"LOCK k -1":         "-ERR timeout is negative: \"-1\" (seconds, greater than 0, at most 86400)\r\n",
			"LOCK list 1":       "-WRONGTYPE Key holds a value that is not a lock: choose another name for the lock\r\n",
			"LOCK text 1":       "-WRONGTYPE Key holds a value that is not a lock: choose another name for the lock\r\n",
			"LOCK counter 1":    "-WRONGTYPE Key holds a value that is not a lock: choose another name for the lock\r\n",
			"UNLOCK list 1":     "-WRONGTYPE Key holds a value that is not a lock: choose another name for the lock\r\n",
			"UNLOCK text FORCE": "-WRONGTYPE Key holds a value that is not a lock: choose another name for the lock\r\n",
			"UNLOCK counter":    "-WRONGTYPE Key holds a value that is not a lock: choose another name for the lock\r\n",
		} {
			c.Expect(command, want)
		}
		c.Expect("LRANGE list 0 -1", "*1\r\n$1\r\nx\r\n")
		c.Expect("GET text", "$5\r\nhello\r\n")
		c.Expect("GET counter", "$2\r\n42\r\n")
		if got := c.Do("KEYS *lockproxy*"); got != "*0\r\n" {
			t.Errorf("refused locks left %q", got)
		}
	})
}

// Any number of words behind the name of a lock command is answered, whatever they are, and its
// connection goes on.
func TestAnyNumberOfWords(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		for _, spec := range syntax.Specs {
			for _, word := range []string{"1", "-1", "", "x", "WAIT", "HELP"} {
				for n := range spec.MinArgs + 4 {
					words := append([]string{spec.Name}, slices.Repeat([]string{word}, n)...)
					if got := c.DoWords(words...); got == "" {
						t.Errorf("%q is not answered", words)
					}
				}
			}
		}
		c.Expect("PING", "+PONG\r\n")
	})
}
