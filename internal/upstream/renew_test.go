package upstream_test

import (
	"bufio"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/slot"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/internal/upstream"
)

// A cluster that lets nobody in without a login says so to DialKnown.
func TestClusterDemandsALogin(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	u, err := upstream.Parse(strings.Replace(c.URL(), "://", "://app:one@", 1))
	if err != nil {
		t.Fatal(err)
	}
	masters := []*testredis.Server{c.MasterOf(0), c.MasterOf(slot.Count - 1)}
	for _, master := range masters {
		master.Ask("ACL", "SETUSER", "app", "on", ">one", "~*", "&*", "+@all")
	}
	following, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { u.Follow(following, hclog.NewNullLogger(), func() {}) })
	defer all.Wait()
	defer stop()
	testwait.Until(t, "the cluster is known", func() bool { return !u.LearnsByLogin() })
	for _, demanded := range []bool{false, true} {
		for _, master := range masters {
			if demanded {
				master.Ask("ACL", "SETUSER", "default", "resetpass", ">secret")
			}
		}
		conn, _, err := u.DialKnown(t.Context(), upstream.Identity{})
		if upstream.IsLoginDemand(err) != demanded || err != nil && !demanded {
			t.Errorf("a login is demanded %v: %v", demanded, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// The connection of a client to a cluster opens further nodes with the password as it is then, and
// so do clients for requests of the proxy's own.
func TestRenewedPasswordInACluster(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	user := func(rules ...string) {
		t.Helper()
		for _, key := range []string{"a", "b"} {
			master := c.MasterOf(c.Slot(key))
			if got := master.Ask(append([]string{"ACL", "SETUSER", "app"}, rules...)...); got != "+OK" {
				t.Fatal(got)
			}
		}
	}
	if c.MasterOf(c.Slot("a")) == c.MasterOf(c.Slot("b")) {
		t.Fatal("the keys are at one node")
	}
	url := func(password string) *upstream.Upstream {
		u, err := upstream.Parse(strings.Replace(c.URL(), "://", "://app:"+password+"@", 1))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	user("on", ">one", "~*", "&*", "+@all")
	u := url("one")
	u.OnRefused(func() { u.Renew(url("two")) })
	following, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { u.Follow(following, hclog.NewNullLogger(), func() {}) })
	defer all.Wait()
	defer stop()
	testwait.Until(t, "the cluster is known", func() bool { return !u.LearnsByLogin() })

	conn, err := u.Dial(t.Context(), upstream.Setup{Identity: u.Initial})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func(words ...string) string {
		t.Helper()
		conn.Write(wire.Append(nil, words...))
		raw, err := wire.ReadReply(in, wire.Either)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if got := ask("SET", "a", "1"); got != "+OK\r\n" {
		t.Errorf("SET a: %q", got)
	}
	user(">two", "<one")
	if got := ask("SET", "b", "1"); got != "+OK\r\n" {
		t.Errorf("SET b: %q", got)
	}
	own := u.Client(u.Initial)
	defer own.Close()
	if got, err := own.Get(t.Context(), "b").Result(); got != "1" {
		t.Errorf("GET b: %q, %v", got, err)
	}

	// After RESET the connection has logged in by another password than in the beginning.
	if got := ask("RESET"); got != "+RESET\r\n" {
		t.Errorf("RESET: %q", got)
	}
	if got := ask(u.Login()[0]...); got != "+OK\r\n" {
		t.Errorf("AUTH: %q", got)
	}
	if got := ask("GET", "a"); got != "$1\r\n1\r\n" {
		t.Errorf("GET a: %q", got)
	}
	user(">three")
	u.Renew(url("three"))
	user("<two")
	c.MasterOf(c.Slot("b")).Ask("CLIENT", "KILL", "USER", "app")
	testwait.Until(t, "the connection to the node is opened again", func() bool {
		return ask("GET", "b") == "$1\r\n1\r\n"
	})
	if u.Renew(url("three")) {
		t.Error("the password has changed once more")
	}
}

// What differs in more than passwords is another upstream.
func TestSameUpstream(t *testing.T) {
	parse := func(url string) *upstream.Upstream {
		u, err := upstream.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"redis://u:p@a", "redis://u:q@a", true},
		{"redis://u:p@a", "redis://v:p@a", false},
		{"redis://u:p@a", "redis://a", false},
		{"redis://:p@a", "redis://:q@a/1", false},
		{"redis://:p@a", "redis://:q@b", false},
		{"redis://:p@a", "rediss://:q@a", false},
		{"rediss://:p@a", "rediss://:q@a", true},
		{"rediss://:p@a", "rediss://:q@a?skip_verify=true", false},
		{"redis://:p@a", "redis+cluster://:q@a", false},
		{"redis+cluster://:p@a,b", "redis+cluster://:q@a,b", true},
		{"redis+sentinel://:p@a,b/g", "redis+sentinel://:q@a,b/g?sentinel_password=s", true},
		{"redis+sentinel://:p@a,b/g", "redis+sentinel://:q@a,c/g", false},
		{"redis+sentinel://:p@a,b/g", "redis+sentinel://:q@a,b/h", false},
	} {
		if got := parse(c.a).Same(parse(c.b)); got != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

// A password that has just been looked for rotates again at once: it is looked for again. The same
// refused password is not looked for all the time.
func TestPasswordRotatesAgainAtOnce(t *testing.T) {
	url := func(password string) *upstream.Upstream {
		u, err := upstream.Parse("redis://app:" + password + "@127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u, right, looked := url("one"), "two", 0
	u.OnRefused(func() {
		looked++
		u.Renew(url(right))
	})
	refused := func(want string, times int) {
		t.Helper()
		next, again := u.LoginAfter(u.Login())
		if got := next[0][2]; got != want || looked != times {
			t.Errorf("another password: %t, %s, want %s; looked for %d times", again, got, want, looked)
		}
	}
	refused("two", 1)
	right = "three"
	refused("three", 2)
	refused("three", 3)
	refused("three", 3)
}
