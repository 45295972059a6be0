package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// rotates is a proxy whose upstream's URL is in a file.
type rotates struct {
	t          *testing.T
	addr, file string
	p          *process
}

func startRotates(t *testing.T, url string) *rotates {
	r := &rotates{t: t, addr: fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t)),
		file: filepath.Join(t.TempDir(), "url")}
	r.write(url)
	r.p = start(t, "--listen", r.addr, "--upstream-file", r.file)
	r.p.waitFor("serving")
	return r
}

func (r *rotates) write(url string) {
	if err := os.WriteFile(r.file, []byte(url), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// client is a new one, which does not log in itself.
func (r *rotates) client() *redis.Client {
	c := proxytest.GoRedis(r.t, r.addr)
	if err := c.Set(r.t.Context(), "k", 1, 0).Err(); err != nil {
		r.t.Errorf("a new client: %v", err)
	}
	return c
}

// A password that rotates: session locks are renewed, and new clients served, with the new one as
// soon as it is in the file and SIGHUP says so, or the old one is refused.
func TestPasswordOfUpstreamRotates(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	user := func(rules ...string) {
		t.Helper()
		if got := server.Ask(append([]string{"ACL", "SETUSER", "app"}, rules...)...); got != "+OK" {
			t.Fatal(got)
		}
	}
	url := func(password string) string {
		return strings.Replace(server.URL(), "://", "://app:"+password+"@", 1)
	}
	user("on", ">one", "~*", "&*", "+@all")
	r := startRotates(t, url("one"))
	holder := r.client()
	conn := holder.Conn()
	token, err := conn.Do(t.Context(), "LOCK", "job", 3600, "SESSION").Int64()
	if err != nil {
		t.Fatal(err)
	}

	user(">two")
	r.write(url("two"))
	r.p.cmd.Process.Signal(syscall.SIGHUP)
	r.p.waitFor("the changed settings are in use: changed=upstream")
	user("<one") // from now on only the new one is accepted
	r.client()

	user(">three")
	r.write(url("three"))
	user("<two") // without SIGHUP
	r.client()
	r.p.waitFor("the upstream refused the password, and a new one was read: it is in use")

	got, err := r.client().Do(t.Context(), "FENCE", "job", token, "PING").Text()
	if got != "PONG" {
		t.Errorf("the lock after both: %q, %v", got, err)
	}
	if strings.Contains(r.p.said(), "three") || strings.Contains(r.p.said(), "one@") {
		t.Errorf("the log has a password:\n%s", r.p.said())
	}
	r.write("redis://other:four@" + server.Addr())
	r.p.cmd.Process.Signal(syscall.SIGHUP)
	r.p.waitFor("take effect only after a restart: settings=upstream")
	r.client()
	if n := strings.Count(r.p.said(), "SIGHUP:"); n != 2 {
		t.Errorf("%d lines about two SIGHUPs:\n%s", n, r.p.said())
	}
}

// While the file has no other password than one that is refused, clients read the refusal. They are
// served once it has the right one.
func TestPasswordOfUpstreamIsLate(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass", "old")
	url := func(password string) string {
		return strings.Replace(server.URL(), "://", "://:"+password+"@", 1)
	}
	r := startRotates(t, url("old"))
	r.client()
	nc, err := net.Dial("tcp", server.Addr())
	said := ask(t, nc, err, "AUTH old\r\nCONFIG SET requirepass new")
	if !strings.HasPrefix(said, "+OK") {
		t.Fatal(said)
	}
	set := func(value int) error {
		c := redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1})
		defer c.Close()
		return c.Set(t.Context(), "k", value, 0).Err()
	}
	testwait.Until(t, "clients read the refusal of the old password", func() bool {
		err := set(1)
		return err != nil && strings.Contains(err.Error(), "WRONGPASS")
	})
	r.write(url("new"))
	testwait.Until(t, "clients are served by the new password", func() bool {
		return set(2) == nil
	})
}

// Likewise the passwords of Sentinels and of the servers behind them.
func TestPasswordsOfSentinelsRotate(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1, Sentinels: 1, Password: "one",
		SentinelPassword: "sone"})
	addrs := strings.TrimPrefix(g.URL(), "redis+sentinel://")
	url := func(server, sentinel string) string {
		return "redis+sentinel://:" + server + "@" + addrs + "?sentinel_password=" + sentinel
	}
	r := startRotates(t, url("wrong", "swrong"))
	r.write(url("one", "sone"))
	testwait.Until(t, "clients are served", func() bool {
		c := redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1})
		defer c.Close()
		return c.Set(t.Context(), "k", 2, 0).Err() == nil
	})
	r.p.waitFor("a new one was read: it is in use")
}
