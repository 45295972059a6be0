//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
)

// The note of LOCK or LOCKALL is shown wherever the holder is, at any proxy, whichever way the lock
// came to it, whatever bytes it has, and with any name of the connection.
func TestNotesAreShownWithTheirHolders(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			bulk := wire.Bulk
			shows := func(c *proxytest.Conn, command, note string) {
				t.Helper()
				if got := c.Do(command); !strings.Contains(got, bulk("note")+note) {
					t.Errorf("%s: %q lacks the note %q", command, got, note)
				}
			}
			a.Lock("plain 60")
			shows(b, "LOCKINFO plain", "$-1\r\n")

			a.Expect("CLIENT SETNAME odd|name!", "+OK\r\n")
			odd := "why\x00|not!\r\n\xff é"
			proxytest.Token(t, a.DoWords("LOCK", "job", "60", "NOTE", odd, "OWNER", "me"))
			for _, command := range []string{"LOCKINFO job", "LOCKINFO job HOLDERS"} {
				shows(b, command, bulk(odd))
				if got := b.Do(command); !strings.Contains(got, bulk("name")+bulk("odd|name!")) ||
					!strings.Contains(got, bulk("client")+bulk(a.LocalAddr().String())) {
					t.Errorf("%s: %q", command, got)
				}
			}
			shows(a, "LOCKLOG job", bulk(odd))

			b.Send("LOCK job 60 WAIT 0 NOTE next")
			time.Sleep(time.Second)
			c := dial(1)
			c.Send("LOCK job 60 WAIT 0 NOTE third")
			time.Sleep(time.Second)
			a.Expect("UNLOCK job", ":1\r\n")
			token := proxytest.Token(t, b.Reply())
			shows(a, "LOCKINFO job", bulk("next"))
			a.Expect(fmt.Sprintf("RELOCK job %d 90", token), ":1\r\n")
			shows(a, "LOCKINFO job", bulk("next"))
			b.Expect("UNLOCK job", ":1\r\n") // by the fast path
			proxytest.Token(t, c.Reply())
			shows(a, "LOCKINFO job", bulk("third"))
			a.Expect("UNLOCK job FORCE", ":1\r\n")
			shows(a, "LOCKLOG job COUNT 1", bulk("third"))

			token = a.Lock("mine 60 OWNER me NOTE one")
			if again := b.Lock("mine 60 OWNER me NOTE two"); again != token {
				t.Errorf("the owner was given token %d, and then %d", token, again)
			}
			shows(a, "LOCKINFO mine", bulk("two"))

			long := strings.Repeat("n", 256)
			a.Lock("doc 60 SHARED NOTE reads")
			b.Lock("doc 60 SHARED NOTE " + long)
			shows(a, "LOCKINFO doc", bulk(long))
			shows(a, "LOCKINFO doc HOLDERS", bulk("reads"))
			b.Expect("UNLOCK doc", ":1\r\n")
			shows(b, "LOCKINFO doc", bulk("reads"))

			proxytest.Token(t, a.Do("LOCKALL 60 2 x y NOTE both"))
			shows(b, "LOCKINFO y", bulk("both"))

			for asked, said := range map[string]string{
				"LOCK k 60 NOTE " + long + "n": `near "NOTE": NOTE has 257 bytes, want at most 256`,
				"LOCK k 60 NOTE":               `near "NOTE": NOTE lacks its value`,
				"LOCK k 60 NOTE a NOTE b":      `near "NOTE": NOTE is given twice`,
				"ONCE k 60 NOTE a":             `near "NOTE": want EARLY`,
			} {
				if got := a.Do(asked); !strings.HasPrefix(got, "-ERR syntax error "+said) {
					t.Errorf("%s: %q", asked, got)
				}
			}
		})
	})
}
