package testredis_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
)

// Servers with links are reached by these, also after failovers.
func TestLinkedServers(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{Linked: true, Sentinels: 1})
	g.InSync(t)
	old := g.Master()
	g.Failover(t)
	g.WaitReplaced(t, old)
	g.InSync(t)
	c := testredis.StartLinkedCluster(t, 0, 2, 1)
	c.Failover(c.MasterOf(0))
	to := c.MasterOf(testredis.Slots - 1)
	c.Migrate(0, to)
	if got, want := c.MasterOf(testredis.Slots/4).Ask("GET", "{06S}"), "-MOVED 0 "+
		to.Told(); got != want {
		t.Errorf("GET: %s, not %s", got, want)
	}
}

// A connection is torn within a reply.
func TestTear(t *testing.T) {
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	for _, reset := range []bool{false, true} {
		for at := range 9 {
			torn := link.Tear("$3\r\nabc\r\n", at, reset)
			nc, err := net.Dial("tcp", link.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			nc.Write([]byte("PING\r\nECHO abc\r\nPING\r\n"))
			<-torn
			got, err := io.ReadAll(nc)
			want := "+PONG\r\n$3\r\nabc\r\n"[:7+at]
			if !strings.HasPrefix(want, string(got)) ||
				!reset && (string(got) != want || err != nil) {
				t.Errorf("torn at %d: %q, %v", at, got, err)
			}
		}
	}
}
