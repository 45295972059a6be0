//go:build linux

package check

import (
	"strings"

	"lockproxy/internal/test/faults/history"
)

// unblocked finds waits whose end is not what CLIENT UNBLOCK has told. Each client waits for one
// lock after the other, and the requests to end a wait lie between it and the next.
func (c *checker) unblocked() {
	waits := map[int]history.Op{} // of each client, the last one
	asked := map[int][]history.Op{}
	for _, o := range c.ops {
		switch {
		case o.Kind == history.Unblock:
			asked[o.Client] = append(asked[o.Client], o)
		case o.Kind == history.Lock && o.Number > 0:
			c.agree(waits[o.Client], asked[o.Client])
			waits[o.Client], asked[o.Client] = o, nil
		}
	}
	for client, w := range waits {
		c.agree(w, asked[client])
	}
}

// agree judges one wait and the requests to end it.
func (c *checker) agree(w history.Op, asked []history.Op) {
	var told []history.Op // that they have ended it
	known := w.Outcome != history.Unknown
	for _, u := range asked {
		c.checked("unblocked")
		switch {
		case u.Outcome == history.Unknown:
			known = false
		case u.Outcome == history.OK && u.Result == 1:
			told = append(told, u)
		case u.Outcome == history.OK && c.waitedThrough(w, u):
			c.violated("unblocked", []history.Op{w, u},
				"client %d waited for lock %s at proxy %d, and CLIENT UNBLOCK %d answered 0",
				w.Client, w.Key, w.Proxy, u.Number)
		}
	}
	byError := strings.HasPrefix(w.Got, "UNBLOCKED")
	early := w.Outcome == history.Null && w.Return < w.Call+w.Within
	switch {
	case len(told) > 1:
		c.violated("unblocked", append(told, w), "client %d was unblocked %d times in one wait",
			w.Client, len(told))
	case len(told) == 1:
		asWanted := byError
		if told[0].Want == "TIMEOUT" {
			asWanted = w.Outcome == history.Null
		}
		if w.Outcome != history.Unknown && !asWanted {
			c.violated("unblocked", []history.Op{w, told[0]},
				"CLIENT UNBLOCK %d %s answered 1, and client %d had of LOCK %s: %q %d %s", w.Number,
				told[0].Want, w.Client, w.Key, w.Outcome, w.Result, w.Got)
		}
		c.endsSoon(w, told[0])
	case known && (byError || early):
		c.violated("unblocked", append(asked, w),
			"the wait of client %d for lock %s ended: %q %s, and no CLIENT UNBLOCK has told so",
			w.Client, w.Key, w.Outcome, w.Got)
	}
}

// waitedThrough reports whether a client certainly waited for as long as a request to end that was
// under way. Both answers come by connections of their own: that to a wait which had just ended can
// be read after the other.
func (c *checker) waitedThrough(w, u history.Op) bool {
	return w.Sent > 0 && c.worked(w.Sent, u.Call, w.Proxy) > c.bounds.Grant.Nanoseconds() &&
		c.worked(u.Return, w.Return, w.Proxy) > c.bounds.Grant.Nanoseconds() &&
		!c.messageLate(w, u, w.Call, w.Return) && !c.excusesWait(w.Call, 0, w)
}

// endsSoon finds a wait that went on after its end was told.
func (c *checker) endsSoon(w, u history.Op) {
	end := max(w.Return, w.Left)
	if c.worked(u.Return, end, w.Proxy) > c.bounds.Idle.Nanoseconds() &&
		!c.messageLate(w, u, u.Call, end) && !c.recovering(u.Call, end, breaksService) {
		c.violated("unblocked", []history.Op{w, u},
			"CLIENT UNBLOCK %d answered 1, and client %d waited for lock %s for %.3f s more", w.Number,
			w.Client, w.Key, float64(end-u.Return)/1e9)
	}
}
