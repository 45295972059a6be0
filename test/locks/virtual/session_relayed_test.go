//go:build !race

package virtual_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
)

// The holder's own DEL loses the lock too.
func TestSessionLockDeletedByItsHolder(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Do("HELLO 3")
		token := c.Lock("job 30 SESSION")
		c.Send("DEL job") // which of the two is told first is not promised
		got := []string{c.Reply(), c.Reply()}
		slices.Sort(got)
		want := []string{":1\r\n", fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n%s:%d\r\n",
			wire.Bulk("job"), token)}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		c.Closed()
	})
}

// A session lock is deleted through the proxy: its client is told at once, in whichever database
// the lock is, however the command is sent, and however many others are deleted with it.
func TestSessionLocksDeletedThroughTheProxy(t *testing.T) {
	const many = 70
	var keys, one []string
	for i := range many {
		keys = append(keys, fmt.Sprint("job", i))
		one = append(one, fmt.Sprint("DEL job", i))
	}
	all := "DEL " + strings.Join(keys, " ")
	for name, commands := range map[string][]string{
		"many keys":      {"SELECT 1", all},
		"EXEC":           {"MULTI", "SELECT 1", all, "EXEC"},
		"many in EXEC":   slices.Concat([]string{"SELECT 1", "MULTI"}, one, []string{"EXEC"}),
		"SELECT 1":       {"SELECT 1", one[0]},
		"EXEC of SELECT": {"MULTI", "SELECT 1", one[0], "EXEC"},
		"RESET":          {"SELECT 2", "RESET", "SELECT 1", one[0]},
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprint(name, together), func(t *testing.T) {
				deletedThroughTheProxy(t, keys, commands, together)
			})
		}
	}
}

func deletedThroughTheProxy(t *testing.T, keys, commands []string, together bool) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		holders := map[string]*proxytest.Conn{}
		for _, key := range keys {
			c := proxytest.Dial(t, p.Addr)
			c.Expect("SELECT 1", "+OK\r\n")
			c.Lock(key + " 600 SESSION")
			holders[key] = c
		}
		time.Sleep(time.Second)
		a := proxytest.Dial(t, p.Addr)
		if together {
			a.Send(commands...)
		}
		for _, command := range commands {
			if !together {
				time.Sleep(100 * time.Millisecond) // what is asked for a queued command comes too early
				a.Send(command)
			}
			a.Reply()
		}
		time.Sleep(100 * time.Millisecond)
		told, want := 0, 0
		for _, command := range commands {
			for _, key := range strings.Fields(command) {
				if c := holders[key]; c != nil {
					if want++; c.Arrived() {
						told++
					}
				}
			}
		}
		if told != want {
			t.Errorf("%d of %d are told", told, want)
		}
	})
}
