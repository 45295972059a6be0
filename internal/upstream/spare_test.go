package upstream

import (
	"testing"

	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
)

// A connection that goes on to another client is reset at once, and its server asked for no more
// than is not known of it: INFO, above all, costs a Redis much.
func TestResetAsksLittle(t *testing.T) {
	const reset, pong, noAuth, no = "+RESET\r\n", "+PONG\r\n",
		"-NOAUTH Authentication required.\r\n", "-ERR max number of clients reached\r\n"
	const info = "$13\r\nx\nrun_id:me\r\n\r\n"
	ann := Identity{User: "ann", Password: "pw", LoggedIn: true}
	for _, test := range []struct {
		name   string
		as     Identity
		known  string // the server's run id
		rounds []round
		nobody bool
		labels Labels // of the client before
	}{
		{"known", Identity{}, "me", []round{{2, reset + pong}, {1, no}}, false, Labels{}},
		{"known, and demands a login", Identity{}, "me", []round{{2, reset + noAuth}, {1, no}}, true, Labels{}},
		{"known, and labelled", Identity{}, "me", []round{{4, "+OK\r\n+OK\r\n" + reset + pong}, {1, no}},
			false, Labels{"me", "lib", "1"}},
		{"known, and named", Identity{}, "me", []round{{2, reset + pong}, {1, no}}, false,
			Labels{Name: "me"}},
		{"known, with a login", ann, "me", []round{{1, reset}, {1, "+OK\r\n"}, {1, no}}, false, Labels{}},
		{"unknown", Identity{}, "", []round{{2, reset + pong}, {2, "-ERR\r\n" + info}, {1, no}}, false, Labels{}},
		{"unknown, and demands a login", Identity{}, "",
			[]round{{2, reset + noAuth}, {2, noAuth + noAuth}, {1, no}}, true, Labels{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := &Upstream{Network: "tcp", Addr: answering(t, test.rounds...), Initial: test.as}
			conn, err := u.connect(t.Context(), "tcp", u.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			known := u.ServerOf(conn)
			known.RunID = test.known
			server, nobody, err := u.Reset(t.Context(), conn, known, test.labels)
			if err != nil || nobody != test.nobody {
				t.Errorf("nobody %v, want %v, %v", nobody, test.nobody, err)
			}
			if !test.nobody && server.RunID != "me" || server.Addr != u.Addr {
				t.Errorf("the server is %+v", server)
			}
		})
	}
}

// One that RESET does not make new, or that cannot be logged in, or by which anything else has come
// than what was asked for, serves nobody.
func TestResetThatFails(t *testing.T) {
	const info = "$13\r\nx\nrun_id:me\r\n\r\n"
	ann := Identity{User: "ann", Password: "pw", LoggedIn: true, DB: 2}
	for _, test := range []struct {
		as     Identity
		known  string // the server's run id
		lib    string // what the client before has said
		rounds []round
	}{
		{Identity{}, "me", "", []round{{2, "-ERR unknown command 'RESET'\r\n+PONG\r\n"}}},
		{Identity{}, "me", "", []round{{2, "+RESET\r\n+PONG\r\n+STRAY\r\n"}}},
		{Identity{}, "me", "", []round{{2, "+RESET\r\n+STRAY\r\n"}}}, // PING's own comes later
		{Identity{}, "me", "", []round{{2, "+RESET\r\n+RESET\r\n"}}},
		{Identity{}, "me", "", []round{{2, "+RESET\r\n$4\r\nPONG\r\n"}}},
		{ann, "me", "", []round{{1, "+RESET\r\n"}, {2, "+RESET\r\n+OK\r\n"}}},
		{ann, "me", "", []round{{1, "+RESET\r\n"}, {2, "+OK\r\n+STRAY\r\n"}}},
		{Identity{}, "", "", []round{{2, "+RESET\r\n+PONG\r\n"}, {2, "+STRAY\r\n" + info}}},
		{Identity{}, "", "", []round{{2, "+RESET\r\n+PONG\r\n"}, {2, info + ":1\r\n"}}},
		{Identity{}, "me", "lib", []round{{3, "-NOPERM no\r\n+RESET\r\n+PONG\r\n"}}},
		{Identity{}, "me", "lib", []round{{3, "+STRAY\r\n+RESET\r\n+PONG\r\n"}}},
	} {
		u := &Upstream{Network: "tcp", Addr: answering(t, test.rounds...), Initial: test.as}
		conn, err := u.connect(t.Context(), "tcp", u.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = u.Reset(t.Context(), conn, Server{RunID: test.known},
			Labels{Name: "me", LibName: test.lib}); err == nil {
			t.Errorf("%+v: no error", test)
		}
	}
}

// Nobody is set up behind a reply to something else.
func TestSetUpAmongRepliesOfOthers(t *testing.T) {
	for _, replies := range []string{"+OK\r\n+OK\r\n+STRAY\r\n", "+STRAY\r\n+OK\r\n+OK\r\n",
		"$2\r\nOK\r\n+OK\r\n+OK\r\n", "+OK\r\n:1\r\n-NOPERM\r\n"} {
		as := Setup{Identity: Identity{User: "ann", Password: "pw", LoggedIn: true, DB: 2}}
		as.Name = "me"
		u := &Upstream{Network: "tcp", Addr: answering(t, round{3, replies})}
		conn, err := u.connect(t.Context(), "tcp", u.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.SetUp(t.Context(), conn, as); err == nil {
			t.Errorf("%q: no error", replies)
		}
	}
}

// A connection on which anything has come is none for the next client, be it a push.
func TestFresh(t *testing.T) {
	for said, want := range map[string]bool{"": true, ">": false, ">1\r\n+a\r\n": false, "+OK\r\n": false} {
		u := &Upstream{Network: "tcp", Addr: answering(t, round{1, said}, round{1, ""})}
		conn, err := u.connect(t.Context(), "tcp", u.Addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		if said != "" {
			s := socket.New(conn)
			testwait.Until(t, "it has come", func() bool { n, _ := s.Peek(); return n > 0 })
		}
		if got := Fresh(conn); got != want {
			t.Errorf("behind %q: %v", said, got)
		}
		conn.Close()
	}
}
