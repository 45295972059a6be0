package upstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/wire"
)

// Who is let in is known by the login's reply, or that to a probe, and by TLS as well.
func TestWhoIsLetIn(t *testing.T) {
	ann := Identity{User: "ann", Password: "pw", LoggedIn: true}
	for _, test := range []struct {
		as      Identity
		reply   string
		refused string // the step
	}{
		{Identity{}, "$2\r\nme\r\n", ""},
		{Identity{}, "-NOPERM this user may not ask\r\n", ""},
		{Identity{}, "-NOAUTH Authentication required.\r\n", probe},
		{Identity{}, "-ERR max number of clients reached\r\n", probe},
		{ann, "+OK\r\n", ""},
		{ann, "-WRONGPASS invalid username-password pair\r\n", "AUTH"},
	} {
		for _, cfg := range []*tls.Config{nil, testtls.ServerConfig()} {
			asked := round{2, test.reply + test.reply} // which server it is
			rounds := []round{asked}
			switch {
			case test.refused == "AUTH":
				rounds = []round{{1, test.reply}}
			case test.as.LoggedIn:
				asked.text = "-NOPERM no\r\n-NOPERM no\r\n"
				rounds = []round{{1, test.reply}, asked}
			case cfg != nil: // the handshake is followed by a probe
				rounds = []round{{1, strings.Replace(test.reply, "$2\r\nme", "+PONG", 1)}, asked}
			}
			u := &Upstream{Network: "tcp", Addr: playing(t, cfg, rounds...)}
			if cfg != nil {
				u.SetTLS(&tls.Config{InsecureSkipVerify: true})
			}
			conn, _, err := u.DialKnown(t.Context(), test.as)
			var refused *Refused
			errors.As(err, &refused)
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("%q by TLS %v: %v", test.reply, cfg != nil, err)
			case test.refused != "" && (refused == nil || refused.Step != test.refused):
				t.Errorf("%q by TLS %v: %v is no refusal of %s", test.reply, cfg != nil, err,
					test.refused)
			}
			if IsLoginDemand(err) != (strings.Contains(test.reply, "NOAUTH") || test.refused == "AUTH") {
				t.Errorf("%q: %v is taken for a demand of a login, or not for one", test.reply, err)
			}
			if err == nil {
				conn.Close()
			}
		}
	}
}

// An upstream that lets nobody in any more without a login demands one.
func TestLoginIsDemanded(t *testing.T) {
	const noAuth, info = "-NOAUTH Authentication required.\r\n", "$13\r\nx\nrun_id:me\r\n\r\n"
	ann := Identity{User: "ann", Password: "pw", LoggedIn: true}
	for _, test := range []struct {
		as       Identity
		rounds   []round
		demanded bool
	}{
		{Identity{}, []round{{2, "-ERR unknown command\r\n" + info}}, false},
		{Identity{}, []round{{2, noAuth + noAuth}}, true},
		{ann, []round{{1, "-WRONGPASS invalid username-password pair\r\n"}}, true},
		{ann, []round{{1, "-ERR max number of clients reached\r\n"}}, false},
	} {
		u := &Upstream{Network: "tcp", Addr: answering(t, test.rounds...), Initial: test.as}
		if _, err := u.StillAdmits(t.Context()); IsLoginDemand(err) != test.demanded {
			t.Errorf("%+v: %v", test.rounds, err)
		}
	}
}

// A connection that was set up serves its client; one that was refused is closed.
func TestSetUp(t *testing.T) {
	const refusal = "-WRONGPASS invalid username-password pair\r\n"
	for replies, good := range map[string]bool{"+OK\r\n+OK\r\n": true, refusal + refusal: false} {
		u := &Upstream{Network: "tcp", Addr: answering(t, round{2, replies}, round{1, "+PONG\r\n"})}
		conn, err := u.connect(t.Context(), "tcp", u.Addr)
		if err != nil {
			t.Fatal(err)
		}
		as := Setup{Identity: Identity{User: "ann", Password: "pw", LoggedIn: true, DB: 2}}
		err = u.SetUp(t.Context(), conn, as)
		if _, refused := errors.AsType[*Refused](err); refused == good || good != (err == nil) {
			t.Errorf("%q: %v", replies, err)
		}
		conn.Write(wire.Append(nil, probe))
		text, err := wire.ReadReply(bufio.NewReader(conn), wire.RESP2)
		if good != (text == "+PONG\r\n") || !good && !errors.Is(err, net.ErrClosed) {
			t.Errorf("%q: behind it %q, %v", replies, text, err)
		}
		conn.Close()
	}
}
