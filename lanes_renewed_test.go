package lockproxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// Once somebody has logged in with a user's new password, those with the old one have as many connections of their own as they need: Redis
// serves them as before, however many they are. Another user's password is of no use to them.
func TestOthersKnowTheNewPassword(t *testing.T) {
	for _, l := range []struct{ name, before, login, after, stranger, again, user string }{
		{"user", "ACL SETUSER ann on >old ~* &* +@all", "AUTH ann old", "ACL SETUSER ann resetpass >new", "AUTH bob bob", "AUTH ann new", "ann"},
		{"default user", "CONFIG SET requirepass old", "AUTH old", "CONFIG SET requirepass new", "AUTH bob bob", "AUTH default new", "default"},
		{"no login", "PING", "PING", "CONFIG SET requirepass new", "AUTH bob bob", "AUTH new", "default"},
	} {
		t.Run(l.name, func(t *testing.T) {
			server := testredis.Start(t)
			p := startProxy(t, server.URL(), func(cfg *proxy.Config) {
				cfg.Dedicated, cfg.UpstreamReserve, cfg.DialTimeout = false, 1, 100*time.Millisecond
			})
			admin := dial(t, server.Addr())
			admin.expect("ACL SETUSER bob on >bob ~* &* +@all", "+OK\r\n")
			admin.do(l.before)
			var old []*rawConn
			for range 8 {
				c := dial(t, p.addr)
				c.do(l.login)
				c.expect("GET a", "$-1\r\n")
				old = append(old, c)
			}
			time.Sleep(1100 * time.Millisecond) // all but the connection that they share grow old
			old[0].expect("GET a", "$-1\r\n")
			killOld(admin, l.user)
			eventually(t, 5*time.Second, "few are left", func() bool { n := p.server.Stats().Connections.Spares; return n > 0 && n < 5 })
			admin.do(l.after)
			stranger := dial(t, p.addr)
			stranger.expect(l.stranger, "+OK\r\n")
			stranger.expect("GET a", "$-1\r\n")
			var served []*rawConn
			for _, c := range old {
				if c.do("MULTI") == "+OK\r\n" {
					served = append(served, c)
				}
			}
			if len(served) == len(old) {
				t.Fatal("nobody is refused: this tests nothing")
			}
			newer := dial(t, p.addr)
			newer.expect(l.again, "+OK\r\n")
			newer.expect("GET a", "$-1\r\n")
			for _, c := range served {
				c.expect("EXEC", "*0\r\n")
			}
			for _, c := range old {
				if got := c.do("MULTI"); got == "+OK\r\n" {
					c.expect("ACL WHOAMI", "+QUEUED\r\n")
					if got := c.do("EXEC"); !strings.HasSuffix(got, "\r\n"+l.user+"\r\n") {
						t.Errorf("it runs as %q", got)
					}
					c.expect("MULTI", "+OK\r\n")
				} else if l.name != "no login" { // who was told NOAUTH then is told so ever after
					t.Errorf("MULTI: %q", got)
				}
			}
		})
	}
}

// Who was logged in as a user that has been deleted isn't served as another of the same name.
func TestAnotherUserOfTheSameName(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = false })
	admin := dial(t, server.Addr())
	for range 20 {
		admin.expect("ACL SETUSER ann on >old ~* &* +@all", "+OK\r\n")
		old := dial(t, p.addr)
		old.expect("AUTH ann old", "+OK\r\n")
		old.expect("GET a", "$-1\r\n")
		admin.send("ACL DELUSER ann", "ACL SETUSER ann on >new ~* &* +@all")
		admin.reply()
		admin.reply()
		newer := dial(t, p.addr)
		newer.expect("AUTH ann new", "+OK\r\n")
		newer.expect("GET a", "$-1\r\n")
		if _, err := old.Write([]byte("MULTI\r\nACL WHOAMI\r\nEXEC\r\n")); err == nil {
			if got, err := old.tryReply(5 * time.Second); err == nil && !strings.HasPrefix(got, "-UPSTREAM") {
				t.Fatalf("it is answered %q", got)
			}
		}
		old.Close()
		newer.Close()
		admin.expect("ACL DELUSER ann", ":1\r\n")
	}
}

// killOld kills a user's connections that have had nothing to do for a second.
func killOld(admin *rawConn, user string) {
	admin.t.Helper()
	for line := range strings.SplitSeq(admin.do("CLIENT LIST"), "\n") {
		var id int
		if _, err := fmt.Sscanf(line, "id=%d", &id); err == nil && strings.Contains(line, "user="+user) && !strings.Contains(line, " idle=0 ") {
			admin.expect(fmt.Sprintf("CLIENT KILL ID %d", id), ":1\r\n")
		}
	}
}
