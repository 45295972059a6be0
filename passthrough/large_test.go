package passthrough

import (
	"bytes"
	"testing"

	"lockproxy/internal/upstream"
)

// A large request of the proxy's own, which loads a script, is none of the client's: the next
// requests need not avoid the loop and the lanes.
func TestLargeRequestOfTheProxy(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 2*bufSize)
	for _, test := range []struct {
		send func(u *unplugged)
		want bool
	}{
		{func(u *unplugged) { u.Relay(Request{Raw: large, Discarded: true}, nil) }, false},
		{func(u *unplugged) { u.Do(nil, large) }, false},
		{func(u *unplugged) { u.Relay(Request{Raw: large}, nil) }, true},
	} {
		u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 2})
		test.send(u)
		if got := u.c.needsHome.any(); got != test.want {
			t.Errorf("the next requests need the home: %v", got)
		}
	}
}
