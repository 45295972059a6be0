package search_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/names"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/search"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// twoUsers is a Redis with users that are confined to their own keys, and have the rights to the
// channels that the documentation names.
func twoUsers(t *testing.T) *testredis.Server {
	var args []string
	for _, user := range []string{"app", "mallory"} {
		args = append(args, "--user", user, "on", ">"+user+"-pw", "~"+user+":*", "resetchannels",
			"&lockproxy:wake:*", "+@all")
	}
	return testredis.Start(t, args...)
}

// dial is a connection that is logged in as a user.
func dial(t *testing.T, addr, user string) *proxytest.Conn {
	c := proxytest.Dial(t, addr)
	c.Expect("AUTH "+user+" "+user+"-pw", "+OK\r\n")
	return c
}

func login(user, password string) names.Identity {
	return names.Identity{User: user, Password: password, LoggedIn: true}
}

// listen passes what comes by the channels of proxies, as a user, to f until the test ends.
func listen(t *testing.T, server *testredis.Server, user string, f func(channel, text string)) {
	direct := proxytest.GoRedis(t, server.Addr())
	direct.Options().Username, direct.Options().Password = user, user+"-pw"
	sub := direct.PSubscribe(proxytest.Ctx, "lockproxy:wake:*")
	if _, err := sub.Receive(proxytest.Ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { // ends with sub
		for m := range sub.Channel() {
			f(m.Channel, m.Payload)
		}
	})
	t.Cleanup(func() { sub.Close(); running.Wait() })
}

// A client waits for a lock whose holder waits for nothing. A user who may use the channels, and
// knows all names, answers whatever the client's proxy says with a wait of that holder for the
// client's lock, at a proxy at which somebody does wait for it. The client is refused only if the
// wait is told by a login that may wait there.
func TestForgedAnswers(t *testing.T) {
	t.Parallel()
	earlier := func(_ string, w deadlock.Wait) string {
		coded := func(s deadlock.Binary) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
		return fmt.Sprintf(`{"Proxy":%q,"Waits":[{"ID":%q,"Proxy":%q,"Owner":%q,"Since":1,`+
			`"Keys":[{"Key":%q,"Enough":1}]}]}`,
			w.Proxy, w.ID, w.Proxy, coded(w.Owner), coded(w.Keys[0].Key))
	}
	by := func(as names.Identity, change func(*deadlock.Wait)) func(string, deadlock.Wait) string {
		return func(to string, w deadlock.Wait) string {
			change(&w)
			return search.Forge(as, to, w)
		}
	}
	unchanged := func(*deadlock.Wait) {}
	app, mallory := login("app", "app-pw"), login("mallory", "mallory-pw")
	for _, as := range []names.Identity{app, mallory, login("app", "guess")} {
		search.Forge(as, "", deadlock.Wait{}) // the first one takes its time
	}
	for name, c := range map[string]struct {
		forge   func(to string, w deadlock.Wait) string
		refused bool
	}{
		"in the form of an earlier version": {forge: earlier},
		"as its own login":                  {forge: by(mallory, unchanged)},
		"as nobody's login":                 {forge: by(names.Identity{}, unchanged)},
		"with a wrong password":             {forge: by(login("app", "guess"), unchanged)},
		"at a proxy that is not listed": {forge: by(app, func(w *deadlock.Wait) {
			w.Proxy, w.ID = "0123456789abcdef", "0123456789abcdef-1/1"
		})},
		"of a lock that another has": {forge: by(app, func(w *deadlock.Wait) {
			w.Keys[0].Key = "app:y"
		})},
		"of a lock of the forger's": {forge: by(mallory, func(w *deadlock.Wait) {
			w.Keys[0].Key = "mallory:1"
		})},
		"as the login that may": {forge: by(app, unchanged), refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := twoUsers(t)
			p, q := proxytest.Start(t, server.URL(), nil), proxytest.Start(t, server.URL(), nil)
			victim, holder := dial(t, p.Addr, "app"), dial(t, q.Addr, "app")
			victim.Lock("app:v 600 OWNER victim")
			holder.Lock("app:x 600 OWNER holder")
			holder.Lock("app:y 600 OWNER nobody")
			for _, key := range []string{"app:v", "app:y"} {
				other := dial(t, q.Addr, "app")
				other.Send("LOCK " + key + " 600 OWNER other WAIT 0")
				proxytest.AwaitWaiters(t, q, key, 1)
			}
			known := dial(t, p.Addr, "mallory")
			dial(t, q.Addr, "mallory").Lock("mallory:1 600 OWNER victim")
			known.Send("LOCK mallory:1 600 OWNER m WAIT 0") // so the proxy knows this login
			proxytest.AwaitWaiters(t, p, "mallory:1", 1)

			direct := proxytest.GoRedis(t, server.Addr())
			forged := make(chan bool, 100)
			listen(t, server, "mallory", func(channel, text string) {
				if search.TellerOf(text) != p.Server.ID() {
					return
				}
				direct.Publish(proxytest.Ctx, channel, c.forge(p.Server.ID(), deadlock.Wait{
					ID: q.Server.ID() + "-99/1", Proxy: q.Server.ID(), Owner: "holder", Since: 1,
					Keys: []deadlock.KeyWait{{Key: "app:v", Enough: 1}}}))
				select {
				case forged <- true:
				default:
				}
			})
			victim.Send("LOCK app:x 600 OWNER victim WAIT 600")
			if c.refused {
				if got := victim.Reply(); !strings.HasPrefix(got, `-DEADLOCK "victim" waits for "app:x"`) {
					t.Errorf("%q", got)
				}
				return
			}
			for range 8 { // as many were sent
				testwait.For(t, "a message", forged)
			}
			if victim.Arrived() {
				t.Fatalf("%q", victim.Reply())
			}
			holder.Expect("UNLOCK app:x", ":1\r\n")
			proxytest.Token(t, victim.Reply())
		})
	}
}

// shows reports whether a message tells a name: as it is, or in base64.
func shows(text, name string) bool {
	if strings.Contains(text, name) {
		return true
	}
	for shift := range 3 {
		coded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + name))
		if strings.Contains(text, coded[(shift*8+5)/6:len(coded)-1]) {
			return true
		}
	}
	return false
}

// Whoever listens to all channels of proxies reads the name of no lock and of no owner, while locks
// are handed on between proxies, forced, given up, and while owners deadlock.
func TestChannelsTellNoNames(t *testing.T) {
	t.Parallel()
	server := twoUsers(t)
	p, q := proxytest.Start(t, server.URL(), nil), proxytest.Start(t, server.URL(), nil)
	var mu sync.Mutex
	var heard []string
	listen(t, server, "mallory", func(channel, text string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, channel+" "+text)
	})
	anna, ben := dial(t, p.Addr, "app"), dial(t, q.Addr, "app")
	anna.Lock("app:first 600 OWNER anna")
	ben.Lock("app:second 600 OWNER benjamin")
	anna.Send("LOCK app:second 600 OWNER anna WAIT 0")
	proxytest.AwaitWaiters(t, p, "app:second", 1)
	ben.Expect("LOCK app:first 600 OWNER benjamin WAIT 0", `-DEADLOCK "benjamin" waits for `+
		`"app:first", held by "anna", who waits for "app:second", held by "benjamin":…`)
	ben.Expect("UNLOCK app:second", ":1\r\n") // which tells the other proxy
	proxytest.Token(t, anna.Reply())
	session := dial(t, p.Addr, "app")
	session.Lock("app:session 600 SESSION OWNER anna")
	ben.Expect("UNLOCK app:session FORCE", ":1\r\n")
	session.Closed()
	questions, lost, told := false, false, false
	testwait.Until(t, "messages of each kind are heard", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, text := range heard {
			questions = questions || strings.Contains(text, "{waits} ")
			lost = lost || strings.Contains(text, " lost:")
			told = told || strings.HasPrefix(text, "lockproxy:wake:"+p.Server.ID()+" ") &&
				!strings.Contains(text, "lost:")
		}
		return questions && lost && told
	})
	mu.Lock()
	defer mu.Unlock()
	for _, text := range heard {
		for _, name := range []string{"app:first", "app:second", "app:session", "anna", "benjamin",
			"app-pw"} {
			if shows(text, name) {
				t.Errorf("%s is told: %s", name, text)
			}
		}
	}
	if !shows("x"+base64.StdEncoding.EncodeToString([]byte("see benjamin there")), "benjamin") {
		t.Error("names in base64 would not be found")
	}
}

// DEADLOCK tells the client nothing of a lock that it may not read.
func TestDeadlockAcrossUsers(t *testing.T) {
	t.Parallel()
	for name, proxies := range map[string]int{"one proxy": 1, "two proxies": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both := []string{"on", ">both-pw", "~app:*", "~mallory:*", "resetchannels",
				"&lockproxy:wake:*", "+@all"}
			server := testredis.Start(t, append([]string{"--user", "both"}, both...)...)
			for user, keys := range map[string]string{"app": "~app:*", "mallory": "~mallory:*"} {
				server.Ask("ACL", "SETUSER", user, "on", ">"+user+"-pw", keys, "resetchannels",
					"&lockproxy:wake:*", "+@all")
			}
			at := []*proxytest.Proxy{proxytest.Start(t, server.URL(), nil)}
			if proxies == 2 {
				at = append(at, proxytest.Start(t, server.URL(), nil))
			}
			p, q := at[0], at[proxies-1]
			// Two users that share one lock each with a third, which waits at both proxies.
			anna, ben, both2 := dial(t, p.Addr, "app"), dial(t, q.Addr, "mallory"), dial(t, q.Addr, "both")
			anna.Lock("app:1 600 OWNER anna")
			ben.Lock("mallory:2 600 OWNER ben")
			both2.Lock("mallory:1 600 OWNER carl")
			idle := dial(t, p.Addr, "both") // so that both proxies know all logins
			idle.Send("LOCK app:1 600 OWNER nobody WAIT 0")
			known := dial(t, p.Addr, "mallory")
			known.Send("LOCK mallory:2 600 OWNER nobody2 WAIT 0")
			proxytest.AwaitWaiters(t, p, "mallory:2", 1)
			other := dial(t, p.Addr, "both")
			other.Lock("app:3 600 OWNER carl")
			ben.Send("LOCK mallory:1 600 OWNER ben WAIT 0")
			proxytest.AwaitWaiters(t, q, "mallory:1", 1)
			other.Lock("mallory:4 600 OWNER anna") // anna's, with another login
			both2.Send("LOCK mallory:2 600 OWNER carl WAIT 0")
			got := both2.Reply()
			if !strings.HasPrefix(got, `-DEADLOCK "carl" waits for "mallory:2", held by "ben", who waits `+
				`for "mallory:1", held by "carl":`) {
				t.Errorf("%q", got)
			}
			// anna waits for carl's app:3, carl for ben's mallory:2, ben for anna's mallory:4.
			both2.Expect("UNLOCK mallory:1", ":1\r\n")
			proxytest.Token(t, ben.Reply())
			both2.Send("LOCK mallory:2 600 OWNER carl WAIT 0")
			proxytest.AwaitWaiters(t, q, "mallory:2", map[int]int{1: 2, 2: 1}[proxies])
			ben.Send("LOCK mallory:4 600 OWNER ben WAIT 0")
			proxytest.AwaitWaiters(t, q, "mallory:4", 1)
			anna.Expect("LOCK app:3 600 OWNER anna WAIT 0", `-DEADLOCK "anna" waits for "app:3", `+
				`held by "carl", who waits for a lock that you may not read, whose holder waits for `+
				`a lock that you may not read, held by "anna":…`)
		})
	}
}
