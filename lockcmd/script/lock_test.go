package script

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/resp"
)

// A waiter that asks because time has passed names those behind it, too, who can share the lock.
func TestAskingAgainNamesThoseBehind(t *testing.T) {
	m := NewMaker(Config{Proxy: "p", Retention: time.Minute})
	request := func(connection, owner string) Request {
		return Request{Key: "job", Timeout: time.Second, Connection: connection, Number: "1",
			Client: "127.0.0.1:1", Owner: owner, Shared: true}
	}
	for _, mode := range []string{ModeFirst, ModeAgain} {
		c := m.Lock(request("p-1", "me"), mode, "0", 0, []Request{request("p-2", ""),
			request("p-3", "him")}, 0)
		for _, named := range []string{"p-1", "me", "p-2", "p-3", "him"} {
			if !strings.Contains(strings.Join(c.Args[1:], " "), named) {
				t.Errorf("%s: %q of %q is missing", mode, named, c.Args)
			}
		}
		if FastArgs(c.Args[2:]) != NoFastPath {
			t.Errorf("%s: %q takes a fast path, which knows one request", mode, c.Args)
		}
	}
}

// The answer to a poll for a shared lock says how many waiters were given it.
func TestAttemptOfSeveral(t *testing.T) {
	c := NewMaker(Config{Proxy: "p"}).Call(LockScript, "job", NoFastPath, "")
	for _, test := range []struct {
		answer    []int64
		given     int
		exclusive bool
	}{{[]int64{7, 0}, 1, true}, {[]int64{7, 0, 1}, 1, true}, {[]int64{7, 0, 0, 3}, 3, false}} {
		var answer Answer
		answer.Type = '*'
		for _, n := range test.answer {
			answer.Elems = append(answer.Elems, resp.Value{Type: ':', Int: n})
		}
		a, err := c.Attempt(answer, nil)
		if err != nil || a.Token != 7 || a.Given != test.given || a.Exclusive != test.exclusive {
			t.Errorf("%v: %+v, %v", test.answer, a, err)
		}
	}
}
