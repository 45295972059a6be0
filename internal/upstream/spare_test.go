package upstream

import "testing"

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
	}{
		{"known", Identity{}, "me", []round{{2, reset + pong}, {1, no}}, false},
		{"known, and demands a login", Identity{}, "me", []round{{2, reset + noAuth}, {1, no}}, true},
		{"known, with a login", ann, "me", []round{{1, reset}, {1, "+OK\r\n"}, {1, no}}, false},
		{"unknown", Identity{}, "", []round{{2, reset + pong}, {2, "+OK\r\n" + info}, {1, no}}, false},
		{"unknown, and demands a login", Identity{}, "",
			[]round{{2, reset + noAuth}, {2, noAuth + noAuth}, {1, no}}, true},
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
			server, nobody, err := u.Reset(t.Context(), conn, known)
			if err != nil || nobody != test.nobody {
				t.Errorf("nobody %v, want %v, %v", nobody, test.nobody, err)
			}
			if !test.nobody && server.RunID != "me" || server.Addr != u.Addr {
				t.Errorf("the server is %+v", server)
			}
		})
	}
}

// One that RESET does not make new, or that cannot be logged in, serves nobody.
func TestResetThatFails(t *testing.T) {
	for _, rounds := range [][]round{
		{{2, "-ERR unknown command 'RESET'\r\n+PONG\r\n"}},
		{{2, "+RESET\r\n+PONG\r\n+STRAY\r\n"}},
	} {
		u := &Upstream{Network: "tcp", Addr: answering(t, rounds...)}
		conn, err := u.connect(t.Context(), "tcp", u.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = u.Reset(t.Context(), conn, Server{RunID: "me"}); err == nil {
			t.Errorf("%+v: no error", rounds)
		}
	}
}
