package real_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// served waits until a proxy's writes arrive at server.
func served(t *testing.T, p *proxytest.Proxy, server *testredis.Server) {
	t.Helper()
	mark := "here:" + server.Addr()
	testwait.Until(t, "the proxy serves by the new master", func() bool {
		nc, err := proxytest.TryDial(p.Addr)
		if err != nil {
			return false
		}
		defer nc.Close()
		c := proxytest.Dialed(t, nc)
		c.Send("SET " + mark + " 1")
		got, err := c.TryReply()
		return err == nil && got == "+OK\r\n" && server.Ask("EXISTS", mark) == ":1"
	})
}

// The master is killed, replaced by hand, and stopped for a while, with locks and data in flight.
func TestSentinelFailovers(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	plain, safe := proxytest.Start(t, g.URL(), nil),
		proxytest.Start(t, g.URL(), func(cfg *proxy.Config) {
			// all of them: Sentinels can make any the master
			cfg.Locks.Durability = lockcmd.Durability{MinReplicas: 2,
				ReplicaTimeout: time.Second}
		})
	works := []*workload{startWorkload(t, plain.Addr, "plain"), startWorkload(t, safe.Addr, "safe")}
	working := func(works ...*workload) { // each client has taken some more locks
		t.Helper()
		for _, w := range works {
			before := w.judge.had()
			testwait.Until(t, "locks are taken", func() bool { return w.judge.had() > before+20 })
		}
	}
	working(works...)
	recovered := func(old *testredis.Server) *testredis.Server {
		t.Helper()
		master := g.WaitReplaced(t, old)
		served(t, plain, master)
		served(t, safe, master)
		return master
	}

	old := g.Servers[0]
	old.Kill()
	master := recovered(old)
	old.Restart()
	old.Replicate(master)
	g.InSync(t)
	working(works...)

	g.Failover(t)
	master = recovered(master)
	g.InSync(t)
	working(works...)

	old = master
	old.Pause()
	recovered(old)
	c := proxytest.Dial(t, plain.Addr)
	c.Expect("SET after:the:switch 1", "+OK\r\n")
	old.Resume()
	working(works[0]) // there are too few replicas for the other
	c.Expect("SET after:the:switch 1", "+OK\r\n")
	if old.Ask("EXISTS", "after:the:switch") == ":1" && old.Role() == "master" {
		t.Error("the old master still gets writes")
	}
	g.InSync(t)
	working(works...)
	for _, w := range works {
		j := w.stop()
		t.Logf(
			"%s: %d locks taken, %d found lost at UNLOCK, %d times two held one, %d commands of "+
				"unknown outcome, %d refused",
			w.prefix, j.taken, j.lost, len(j.violations), j.unknown, j.refused)
		if len(j.wrong) > 0 || len(j.backward) > 0 {
			t.Errorf("%s: wrong replies %q, tokens that went back %q", w.prefix, j.wrong,
				j.backward)
		}
		if w.prefix == "safe" && len(j.violations) > 0 {
			t.Errorf("with min-replicas: %q", j.violations)
		}
	}
}

// A proxy logs in to the Sentinels and to the servers with their passwords, continues while
// Sentinels are away, and reports why if all are.
func TestSentinelLogin(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1, Password: "pw",
		SentinelPassword: "spw"})
	addrs := strings.TrimPrefix(g.URL(), "redis+sentinel://")
	c := proxytest.Dial(t, proxytest.Start(t, "redis+sentinel://:pw@"+addrs+
		"/2?sentinel_password=spw", nil).Addr)
	c.Expect("SET x 1", "+OK\r\n")
	c.Lock("job 300")
	if got := g.Servers[0].Ask("INFO", "keyspace"); !strings.Contains(got, "db2:keys=3") {
		t.Errorf("not in database 2: %s", got)
	}
	// Without a password for the servers clients bring their
	// own, and the proxy can't ask for the role.
	open := proxytest.Dial(t, proxytest.Start(t, "redis+sentinel://"+addrs+"?sentinel_password=spw",
		nil).Addr)
	open.Expect("GET x", "-NOAUTH …")
	open.Expect("AUTH pw", "+OK\r\n")
	open.Lock("open 300")

	denied := proxytest.Dial(t, proxytest.Start(t, "redis+sentinel://:pw@"+addrs+
		"?sentinel_password=wrong", nil).Addr)
	got := ""
	testwait.Until(t, "a Sentinel has answered in time", func() bool {
		got = denied.Do("LOCK job 300")
		return !strings.Contains(got, "i/o timeout") && !strings.Contains(got, "asked yet")
	})
	if !strings.HasPrefix(got,
		"-UPSTREAM cannot reach mymaster: nothing was sent, try again (no Sentinel has told who "+
			"the master is: ") ||
		!strings.Contains(got, "WRONGPASS") || strings.Contains(got, "wrong") {
		t.Errorf("with a wrong password: %q", got)
	}
	g.Sentinels[0].Kill()
	g.Sentinels[1].Kill()
	last := proxytest.Dial(t, proxytest.Start(t, "redis+sentinel://:pw@"+addrs+
		"?sentinel_password=spw", nil).Addr)
	last.Lock("last 300")
	g.Sentinels[2].Kill()
	last.Expect("PING", "+PONG\r\n") // a known master stays known
	c.Expect("PING", "+PONG\r\n")
}

// An operator makes the master a replica without the Sentinels:
// the proxy leaves its connections within seconds.
func TestSentinelDemotedByHand(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1})
	p := proxytest.Start(t, g.URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	c.Expect("MULTI", "+OK\r\n") // it has its own connection
	host, port, _ := net.SplitHostPort(g.Servers[1].Addr())
	g.Servers[1].Ask("REPLICAOF", "NO", "ONE")
	if got := g.Servers[0].Ask("REPLICAOF", host, port); got != "+OK" {
		t.Fatal(got)
	}
	if got, err := c.TryReply(); err == nil {
		t.Errorf("the session on the old master lives: %q, %v", got, err)
	}
	if got := proxytest.Dial(t, p.Addr).Do("SET x 1"); !strings.HasPrefix(got,
		"-UPSTREAM cannot reach "+g.Servers[0].Told()) ||
		!strings.Contains(got, "it is a replica") {
		t.Errorf("a replica is used: %q", got)
	}
}

// With --failover-hold no lock is given for a while after a failover, and waiters wait on.
func TestFailoverHold(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1, Sentinels: 1})
	holds := func(d time.Duration) func(cfg *proxy.Config) {
		return func(cfg *proxy.Config) {
			cfg.Locks.Durability = lockcmd.Durability{FailoverHold: d}
		}
	}
	p := proxytest.Start(t, g.URL(), holds(time.Hour))
	brief := proxytest.Start(t, g.URL(), holds(500*time.Millisecond))
	c := proxytest.Dial(t, p.Addr)
	token := c.Lock("job 300")
	testwait.Until(t, "the replica has the lock", func() bool {
		return g.Servers[1].Ask("EXISTS", "job") == ":1"
	})
	g.Failover(t)
	g.WaitReplaced(t, g.Servers[0])
	var got string
	testwait.Until(t, "the proxy has noticed the failover", func() bool {
		nc, err := proxytest.TryDial(p.Addr)
		if err != nil {
			return false
		}
		defer nc.Close()
		fmt.Fprint(nc, "LOCK other 300\r\n")
		got, err = proxytest.Dialed(t, nc).TryReply()
		return err == nil && strings.Contains(got, "failover-hold")
	})
	if !strings.HasPrefix(got, "-UPSTREAM was replaced by another server: ") {
		t.Errorf("LOCK: %q", got)
	}
	var d *proxytest.Conn
	testwait.Until(t, "the new master answers", func() bool { // Sentinels may end its connections
		d = proxytest.Dial(t, p.Addr)
		got = d.Do(fmt.Sprintf("RELOCK job %d 300", token))
		return !strings.HasPrefix(got, "-UPSTREAM ")
	})
	if got != ":1\r\n" {
		t.Errorf("a held lock does not stay held: %q", got)
	}
	d.Expect("LOCK other 300 WAIT 0.1", "-UPSTREAM was replaced …")
	d.Expect("SET x 1", "+OK\r\n")
	d.Expect(proxytest.Unlock("job", token), ":1\r\n")
	proxytest.Dial(t, brief.Addr).Lock("other 300 WAIT 0")
	d.Expect("LOCK job 300", "-UPSTREAM was replaced …")
	proxytest.Dial(t, brief.Addr).Lock("job 300")
}

// TLS to the Sentinels and to the servers, each with the name by which it is reached.
func TestSentinelTLS(t *testing.T) {
	t.Parallel()
	ca := testtls.NewAuthority(t)
	pair := ca.Issue(t, "redis")
	tlsArgs := func(port int) []string {
		return []string{"--tls-port", fmt.Sprint(port), "--tls-cert-file", pair.CertFile,
			"--tls-key-file", pair.KeyFile, "--tls-ca-cert-file", ca.File, "--tls-replication",
			"yes", "--tls-auth-clients", "no"}
	}
	masterPort, sentinelPort := testredis.FreePort(t), testredis.FreePort(t)
	master := testredis.Start(t, tlsArgs(masterPort)...)
	testredis.StartSentinel(t, fmt.Sprintf("127.0.0.1:%d", masterPort), tlsArgs(sentinelPort)...)
	p := proxytest.Start(t, fmt.Sprintf("rediss+sentinel://127.0.0.1:%d/mymaster", sentinelPort),
		func(cfg *proxy.Config) {
			tls := cfg.Upstream.TLS().Clone()
			tls.RootCAs = ca.Pool
			cfg.Upstream.SetTLS(tls)
		})
	proxytest.Dial(t, p.Addr).Lock("job 300")
	if got := master.Ask("EXISTS", "job"); got != ":1" {
		t.Errorf("not at the master: %s", got)
	}
	stranger := proxytest.Start(t, fmt.Sprintf("rediss+sentinel://127.0.0.1:%d/mymaster",
		sentinelPort), nil)
	testwait.Until(t, "an unknown authority is named as the reason",
		func() bool {
			got := proxytest.Dial(t, stranger.Addr).Do("LOCK job 300")
			return strings.HasPrefix(got, "-UPSTREAM cannot reach mymaster") &&
				strings.Contains(got, "certificate signed by unknown authority")
		})
}
