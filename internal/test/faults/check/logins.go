//go:build linux

package check

import (
	"strings"

	"lockproxy/internal/test/faults/history"
)

// login names a password of a user.
type login struct{ user, password string }

// logins finds clients that were refused though their login was right, and such as were let in by a
// password that was removed.
func (c *checker) logins() {
	accepted, removes, removed := map[login]int64{}, map[login]int64{}, map[login]int64{}
	for _, o := range c.ops {
		switch as := (login{o.Owner, o.Value}); o.Kind {
		case history.Accept:
			accepted[as] = o.Return
		case history.Reject:
			removes[as], removed[as] = o.Call, o.Return
		}
	}
	for _, o := range c.ops {
		as := login{o.Owner, o.Value}
		from, ours := accepted[as]
		if refused := refusesLogin(o.Got); !ours && refused && !c.removed(o) {
			// it has not logged in, so the proxy's own login was refused
			c.violated("login", []history.Op{o}, "client %d asked %s %s, and had: %s", o.Client, o.Kind,
				o.Key, o.Got)
		}
		if o.Kind != history.Login && o.Kind != history.Echo || !ours {
			continue
		}
		c.checked("login")
		until, ends := removes[as]
		known := o.Return != 0 // otherwise its connection was lost, at a time that is not known
		if refusesLogin(o.Got) && o.Call > from && (!ends || known && o.Return < until) {
			c.violated("login", []history.Op{o},
				"client %d asked %s with a password of %s that was right, and had: %s", o.Client, o.Key,
				o.Owner, o.Got)
		}
		if o.Kind == history.Login && o.Outcome == history.OK && ends && o.Call > removed[as] {
			c.violated("login", []history.Op{o},
				"client %d logged in as %s by a password that was removed", o.Client, o.Owner)
		}
	}
}

// removed reports whether the user of a client can have been removed before an answer.
func (c *checker) removed(o history.Op) bool {
	for i, f := range c.faults {
		if f.Breaks.Users && f.Concerns(o) && f.From <= o.Return && c.over[i] >= o.Call {
			return true
		}
	}
	return false
}

func refusesLogin(text string) bool {
	return strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOAUTH")
}
