package hints

import (
	"errors"
	"fmt"
	"strings"

	"lockproxy/internal/resp"
)

// take takes what the upstream has sent.
func (c *conn) take(raw []byte, head resp.Head) error {
	if len(raw) > maxReply {
		if head.Type == '>' || head.Type == '*' {
			return nil // no proxy sends such a message
		}
		return fmt.Errorf("a reply of more than %d bytes", maxReply)
	}
	v, err := resp.ParseValue(raw)
	switch {
	case err != nil:
		return err
	case v.IsError():
		return c.refused(refusedError(v.Text))
	case v.Type != '>' && v.Type != '*' || !c.told(v.Elems) && v.Type == '*':
		c.answered(v.Int == 0)
	}
	return nil
}

// told takes a push, or what RESP2 has instead. It reports whether it is one that c knows.
func (c *conn) told(v []resp.Value) bool {
	if len(v) < 2 {
		return false
	}
	kind, name := string(v[0].Text), string(v[1].Text)
	switch kind {
	case "invalidate":
		c.changed(v[1])
	case "subscribe", "ssubscribe":
		c.confirmed(name, true)
	case "unsubscribe", "sunsubscribe":
		c.confirmed(name, false)
	case "message", "smessage":
		c.l.onMessage(name, string(v[len(v)-1].Text))
	default:
		return false
	}
	return true
}

// answered takes the reply to the first request without one. free is that to EXISTS.
func (c *conn) answered(free bool) {
	c.l.mu.Lock()
	r := c.takeLocked()
	c.tracks = c.tracks || r.kind == asksTracking
	_, tracked := c.keys[r.name]
	if tracked = tracked && r.kind == asksKey; tracked {
		c.keys[r.name] = trackedKey{r.name, true}
	}
	c.l.mu.Unlock()
	if tracked {
		c.l.keyTracked(c.as, r.name, free)
	}
}

// changed takes a push: some keys have changed, or all.
func (c *conn) changed(list resp.Value) {
	var keys []string
	c.l.mu.Lock()
	for _, e := range list.Elems {
		name := c.keys[string(e.Text)].name
		if name == "" {
			name = string(e.Text)
		}
		keys = append(keys, name)
	}
	if list.IsNull() { // FLUSHALL
		for key := range c.keys {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if c.keys[key].now {
			delete(c.keys, key)
		}
	}
	c.l.mu.Unlock()
	c.l.keysChanged(c.as, keys)
}

// refusedError is the upstream's error to what the connection asks for.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// lasts reports whether the upstream would say the same again: it does not know the command, or the
// user may not use it. LOADING, CLUSTERDOWN and the like pass.
func (e refusedError) lasts() bool {
	code, _, _ := strings.Cut(string(e), " ")
	return code == "ERR" || code == "NOPROTO" || code == "NOPERM"
}

// isRefused reports whether a user may not do what was asked, or can no longer log in.
func isRefused(err error) (denied, invalid bool) {
	if err == nil {
		return false, false
	}
	text := err.Error()
	var login interface{ Said() string } // the upstream's words to a login of the proxy
	if errors.As(err, &login) {
		text = login.Said()
	}
	return strings.HasPrefix(text, "NOPERM"),
		strings.HasPrefix(text, "NOAUTH") || strings.HasPrefix(text, "WRONGPASS")
}

// refused takes an error. The connection ends by the one that it returns, and not by what the user
// may not do: one who may not track can subscribe, and the other way round.
func (c *conn) refused(e refusedError) error {
	l := c.l
	l.mu.Lock()
	r := c.takeLocked()
	var relied []string
	end := error(e)
	switch {
	case r.kind == asksLife, r.kind == endsChannel:
		end = nil // any answer is a sign of life
	case !e.lasts():
	case r.kind != asksChannel:
		c.resp2 = c.resp2 || r.kind == asksProtocol
		relied, end = c.relyOnNothingLocked(), nil
		c.refuseLocked(false, true)
	case c.apart != 0: // the review asks again
		end = nil
	case l.sharded.Load() && strings.HasPrefix(string(e), "ERR unknown command"):
		l.sharded.Store(false) // the next connection listens to one channel for all locks
		clear(l.channels)
		l.wantPlaceLocked(0)
	case l.placeOf(r.name) >= 0:
		end = nil
		c.refuseLocked(true, false)
	default: // the review asks again
		end = nil
	}
	l.mu.Unlock()
	if end == nil {
		l.mayBeFree(c.as, relied)
		l.Log.Debug("the user may not be told of changes of locks: waiters poll", "error", e)
	}
	return end
}
