package upstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// round is some requests, and what an upstream then answers.
type round struct {
	requests int
	text     string
}

// answering is the address of an upstream that plays these rounds by each connection.
func answering(t *testing.T, rounds ...round) (addr string) {
	t.Helper()
	return playing(t, nil, rounds...)
}

// playing is answering, by TLS if there is a configuration of it.
func playing(t *testing.T, cfg *tls.Config, rounds ...round) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg != nil {
		ln = tls.NewListener(ln, cfg)
	}
	ended := make(chan struct{})
	go func() { // ends when ln does
		defer close(ended)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			nc.SetDeadline(testwait.Deadline())
			in := bufio.NewReader(nc)
			for _, r := range rounds {
				for range r.requests {
					if _, err := wire.ReadCommand(in); err != nil {
						return
					}
				}
				io.WriteString(nc, r.text)
			}
		}
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	return ln.Addr().String()
}

const tracked = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$22\r\nm:\r\n+FORGED\r\n-FORGED\r\n\r\n"

// The replies to a login are told from pushes before, between and behind them, and nothing is read
// beyond the last. Anything else that follows ends the connection.
func TestLoginAmongPushes(t *testing.T) {
	const master = "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
	const replica = "*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$9\r\nconnected\r\n:0\r\n"
	const hello = "%1\r\n+proto\r\n:3\r\n"
	id := Identity{User: "alice", Password: "a", LoggedIn: true, DB: 2, Proto: 3}
	for _, test := range []struct {
		name    string
		replies []string
		behind  string
		want    func(err error) bool
	}{
		{"let in", []string{"+OK\r\n", hello, "+OK\r\n", master}, "",
			func(err error) bool { return err == nil }},
		{"a replica", []string{"+OK\r\n", hello, "+OK\r\n", replica}, "",
			func(err error) bool { return errors.Is(err, errNotMaster) }},
		{"no such database", []string{"+OK\r\n", hello, "-ERR DB index\r\n", master}, "",
			func(err error) bool {
				var refused *Refused
				return errors.As(err, &refused) && refused.Step == "SELECT" &&
					refused.Reply == "ERR DB index"
			}},
		{"a reply too many", []string{"+OK\r\n", hello, "+OK\r\n", master},
			"+OK\r\n", func(err error) bool { return errors.Is(err, errUnexpectedReply) }},
	} {
		for at := range len(test.replies) + 1 {
			var text strings.Builder
			for i, reply := range test.replies {
				if i == at {
					text.WriteString(tracked)
				}
				text.WriteString(reply)
			}
			rest := test.behind
			if at == len(test.replies) && rest == "" {
				rest = tracked
			}
			text.WriteString(rest)
			u := &Upstream{Network: "tcp", sentinels: newSentinels("g", []string{"s"})}
			u.sentinels.record("s", vote{answering(t, round{len(test.replies), text.String()}), 1},
				func(string, string) {})
			conn, err := u.Dial(t.Context(), Setup{Identity: id})
			if !test.want(err) {
				t.Errorf("%s, a push behind reply %d: %v", test.name, at, err)
			}
			if err != nil {
				continue
			}
			conn.SetReadDeadline(testwait.Deadline())
			left := make([]byte, len(rest))
			if _, err := io.ReadFull(conn, left); err != nil || string(left) != rest {
				t.Errorf("%s, a push behind reply %d: %q is left, %v", test.name, at, left, err)
			}
			conn.Close()
		}
	}
}

// A reply too many behind those to a login ends the connection, by TLS as well: it would be taken for
// the reply to the next client's first request.
func TestReplyBehindALogin(t *testing.T) {
	for _, stray := range []string{"-ERR stray\r\n", "+OK\r\n"} {
		u := &Upstream{Network: "tcp",
			Addr: playing(t, testtls.ServerConfig(), round{1, "+OK\r\n" + stray})}
		u.SetTLS(&tls.Config{InsecureSkipVerify: true})
		_, err := u.Dial(t.Context(), Setup{Identity: Identity{Password: "p", LoggedIn: true}})
		if !errors.Is(err, errUnexpectedReply) || errors.Is(err, errAfterHandshake) {
			t.Errorf("%q behind the reply to AUTH: %v", stray, err)
		}
	}
}

// While a connection logs in its password is replaced, and so is the one that is found then.
func TestPasswordRotatesDuringALogin(t *testing.T) {
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	addr := answering(t, round{1, wrong}, round{1, wrong}, round{1, "+OK\r\n"})
	url := func(password string) *Upstream {
		u, err := Parse("redis://app:" + password + "@" + addr)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u, next := url("one"), []string{"two", "three"}
	u.OnRefused(func() {
		u.Renew(url(next[0]))
		next = next[1:]
	})
	conn, err := u.Dial(t.Context(), Setup{Identity: u.Initial})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
